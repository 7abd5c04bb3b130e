// A memory of wide rows, read as a whole and written by beats from DRAM: weights, lane tables and parameters. A read
// port gives its row in the next cycle. Ports are copies of the memory where it is made of RAM with one of them.
module rows #(
    parameter int ROWS  = 1,
    parameter int BEATS = 1,  // of a row
    parameter int B     = 1,  // bytes of a beat
    parameter int PORTS = 1
) (
    input  logic        clk,
    input  logic        write,
    input  logic [19:0] write_row,
    input  logic [15:0] write_beat,
    input  logic [7:0]  write_data[B],
    input  logic [19:0] read_row[PORTS],
    output logic [7:0]  read_data[PORTS][BEATS*B],
    output logic        fault  // a write outside
);
  logic [7:0] memory[ROWS][BEATS*B];

  assign fault = write && int'(write_row) >= ROWS;

  always_ff @(posedge clk) begin
    if (write && int'(write_row) < ROWS)
      for (int i = 0; i < B; i++) memory[int'(write_row)][int'(write_beat)*B+i] <= write_data[i];
    for (int p = 0; p < PORTS; p++)
      if (int'(read_row[p]) < ROWS) read_data[p] <= memory[int'(read_row[p])];
  end
endmodule
