// A memory of wide rows, read as a whole and written by beats from DRAM: lane tables and parameters. A read port
// gives its row in the next cycle. Ports are copies of the memory, and each beat of a row is a RAM, the last of no more
// bits than the row has.
module rows #(
    parameter int ROWS  = 1,
    parameter int BEATS = 1,  // of a row
    parameter int B     = 1,  // bytes of a beat
    parameter int PORTS = 1,
    parameter int BITS  = 8   // of a row
) (
    input  logic                 clk,
    input  logic                 write,
    input  logic [19:0]          write_row,
    input  logic [15:0]          write_beat,
    input  logic [8*B-1:0]       write_data,
    input  logic [19:0]          read_row[PORTS],
    output logic [BITS-1:0]      read_data[PORTS],
    output logic                 fault  // a write outside
);
  assign fault = write && int'(write_row) >= ROWS;

  for (genvar p = 0; p < PORTS; p++) begin : copies
    for (genvar b = 0; b < BEATS; b++) begin : beats
      localparam int OWN = BITS - 8 * B * b < 8 * B ? BITS - 8 * B * b : 8 * B;

      ram #(ROWS, OWN) held (
          .clk, .read_row(24'(read_row[p])), .read_data(read_data[p][8*B*b+:OWN]),
          .write(write && !fault && int'(write_beat) == b), .write_row(24'(write_row)), .write_data(write_data[OWN-1:0])
      );
    end
  end
endmodule
