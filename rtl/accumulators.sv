// Where sums are kept: C columns of int32, each of two banks (halves) with one read and one write port. The array's sums
// reach column c c cycles after column 0, so a row's address goes from column to column with them; whoever reads takes
// a whole row in one cycle, and so does who puts another in its place. A stream that adds uses both ports, one that does
// not the write port alone, so that another row of that half may be read meanwhile. A bank reads, adds and writes in one
// cycle, so that two rows in a row may be of one address; a RAM that takes two forwards what it is about to write.
//
//   cycle           a      a+1    a+2
//   column 0        row 0  row 1  row 2
//   column 1               row 0  row 1
module accumulators #(
    parameter int R    = 4,
    parameter int C    = 4,
    parameter int ROWS = 16
) (
    input  logic               clk,
    input  logic               reset,
    // A row of a stream, in the cycle before its lanes are read; its sums are here R + 2 cycles later.
    input  logic               stream,
    input  logic        [15:0] stream_row,
    input  logic               stream_adds,   // adds to what is there, or takes its place
    input  logic               stream_greatest,  // .. or does so only where it is greater
    input  logic               stream_last,   // the last row of an instruction
    input  logic               stream_fresh,  // .. that has taken new weights
    input  logic signed [31:0] sum[C],
    output logic               done,          // the last row of an instruction is in its last column
    output logic               done_fresh,
    // Readers, whose rows are there in the next cycle.
    input  logic               store_read,
    input  logic        [15:0] store_row,
    output logic signed [31:0] store_sums[C],
    input  logic               put,           // a row in place of another
    input  logic        [15:0] put_row,
    input  logic signed [31:0] put_sums[C],
    input  logic               dma_read,
    input  logic        [15:0] dma_row,
    output logic signed [31:0] dma_sums[C],
    output logic               clash_fault,   // two readers or two writers at one port
    output logic               range_fault    // a row outside
);
  localparam int HALF = ROWS / 2;
  localparam int STAGES = R + C + 1;  // from a row's lanes to its last column
  localparam int COLUMN = R + 1;      // the stage of column 0

  typedef struct packed {
    logic        valid;
    logic        adds;
    logic        greatest;
    logic        last;
    logic        fresh;
    logic [15:0] row;
  } stage_t;

  stage_t stage[STAGES];

  always_ff @(posedge clk)
    for (int i = 0; i < STAGES; i++)
      if (reset) stage[i] <= '0;
      else if (i == 0)
        stage[i] <= '{
            valid: stream, adds: stream_adds, greatest: stream_greatest, last: stream_last, fresh: stream_fresh,
            row: stream_row
        };
      else stage[i] <= stage[i-1];

  assign done = stage[STAGES-1].valid && stage[STAGES-1].last;
  assign done_fresh = done && stage[STAGES-1].fresh;

  function automatic logic upper(input logic [15:0] row);
    return row >= 16'(HALF);
  endfunction

  always_comb begin
    clash_fault = store_read && dma_read && upper(store_row) == upper(dma_row);
    range_fault = store_read && int'(store_row) >= ROWS || dma_read && int'(dma_row) >= ROWS ||
        put && int'(put_row) >= ROWS;
    for (int c = 0; c < C; c++)
      if (stage[COLUMN+c].valid) begin
        if (stage[COLUMN+c].adds && store_read && upper(store_row) == upper(stage[COLUMN+c].row)) clash_fault = 1'b1;
        if (stage[COLUMN+c].adds && dma_read && upper(dma_row) == upper(stage[COLUMN+c].row)) clash_fault = 1'b1;
        if (put && upper(put_row) == upper(stage[COLUMN+c].row)) clash_fault = 1'b1;
        if (int'(stage[COLUMN+c].row) >= ROWS) range_fault = 1'b1;
      end
  end

  // A bank serves whoever reads its half; two at once are a fault, and a stream is served.
  logic [15:0] read_place[C][2], write_place[C][2];
  logic streams[C][2], write[C][2];
  logic signed [31:0] read[C][2], there[C], added[C], written[C][2], store_next[C], dma_next[C];

  function automatic logic [15:0] of_half(input logic [15:0] row, input logic half);
    return half ? row - 16'(HALF) : row;
  endfunction

  always_comb
    for (int c = 0; c < C; c++) begin
      for (int h = 0; h < 2; h++) begin
        streams[c][h] = stage[COLUMN+c].valid && upper(stage[COLUMN+c].row) == h[0];
        write[c][h] = streams[c][h] || put && upper(put_row) == h[0];
        write_place[c][h] = of_half(streams[c][h] ? stage[COLUMN+c].row : put_row, h[0]);
        read_place[c][h] = of_half(streams[c][h] && stage[COLUMN+c].adds ? stage[COLUMN+c].row :
                                   store_read && upper(store_row) == h[0] ? store_row : dma_row, h[0]);
      end
      there[c] = stage[COLUMN+c].adds ? read[c][upper(stage[COLUMN+c].row)] : 32'sd0;
      added[c] = !stage[COLUMN+c].greatest ? sum[c] + there[c] : sum[c] > there[c] ? sum[c] : there[c];
      for (int h = 0; h < 2; h++) written[c][h] = streams[c][h] ? added[c] : put_sums[c];
      store_next[c] = read[c][upper(store_row)];
      dma_next[c] = read[c][upper(dma_row)];
    end

  for (genvar c = 0; c < C; c++) begin : column
    for (genvar h = 0; h < 2; h++) begin : bank
      (* ram_style = "distributed" *) logic signed [31:0] memory[HALF];

      assign read[c][h] = memory[int'(read_place[c][h])];

      always_ff @(posedge clk)
        if (write[c][h] && int'(write_place[c][h]) < HALF) memory[int'(write_place[c][h])] <= written[c][h];
    end
  end

  always_ff @(posedge clk) begin
    if (store_read) store_sums <= store_next;
    if (dma_read) dma_sums <= dma_next;
  end
endmodule
