// A RAM with one read and one write port: what is read is there in the next cycle. What is written in the same cycle at
// the same place may or may not be seen: nobody here asks for it.
module ram #(
    parameter int ROWS = 1,
    parameter int BITS = 8
) (
    input  logic            clk,
    input  logic [23:0]     read_row,
    output logic [BITS-1:0] read_data,
    input  logic            write,
    input  logic [23:0]     write_row,
    input  logic [BITS-1:0] write_data
);
  (* ram_style = "block" *) logic [BITS-1:0] memory[ROWS];

  always_ff @(posedge clk) begin
    read_data <= memory[int'(read_row)];
    if (write) memory[int'(write_row)] <= write_data;
  end
endmodule
