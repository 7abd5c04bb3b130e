// A memory of wide rows, read as a whole and written by beats from DRAM: weights, lane tables and parameters. A read
// port gives its row in the next cycle. Ports are copies of the memory where it is made of RAM with one of them.
module rows #(
    parameter int ROWS  = 1,
    parameter int BEATS = 1,  // of a row
    parameter int B     = 1,  // bytes of a beat
    parameter int PORTS = 1
) (
    input  logic                 clk,
    input  logic                 write,
    input  logic [19:0]          write_row,
    input  logic [15:0]          write_beat,
    input  logic [8*B-1:0]       write_data,
    input  logic [19:0]          read_row[PORTS],
    output logic [8*BEATS*B-1:0] read_data[PORTS],
    output logic                 fault  // a write outside
);
  logic [8*BEATS*B-1:0] memory[ROWS];

  assign fault = write && int'(write_row) >= ROWS;

  always_ff @(posedge clk) begin
    if (write && int'(write_row) < ROWS)
      memory[int'(write_row)][8*B*int'(write_beat)+:8*B] <= write_data;
    for (int p = 0; p < PORTS; p++)
      if (int'(read_row[p]) < ROWS) read_data[p] <= memory[int'(read_row[p])];
  end
endmodule
