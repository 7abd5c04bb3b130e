// Weight memory: a RAM of bytes for each column, all of which are read at one row and each written at a row of its own.
// What is read is there in the next cycle.
module weights #(
    parameter int C    = 4,
    parameter int ROWS = 8
) (
    input  logic               clk,
    input  logic        [19:0] read_row,
    output logic     [8*C-1:0] read_data,
    input  logic               write[C],
    input  logic signed [25:0] write_row[C],
    input  logic        [7:0]  write_data[C],
    output logic               fault  // a write outside
);
  logic [C-1:0] outside;

  assign fault = |outside;

  for (genvar c = 0; c < C; c++) begin : columns
    assign outside[c] = write[c] && (write_row[c] < 0 || write_row[c] >= 26'(ROWS));

    ram #(ROWS, 8) held (
        .clk, .read_row(24'(read_row)), .read_data(read_data[8*c+:8]), .write(write[c] && !outside[c]),
        .write_row(24'(write_row[c])), .write_data(write_data[c])
    );
  end
endmodule
