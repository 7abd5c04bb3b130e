// The registers of columns: what a reduction adds up of the rows of sums that pass by, all columns at once, and the
// offset and the factor that it makes of that when the last one has passed.
//
//   cycle     t       t+1         t+2    t+3            t+4 .. t+5       t+7 .. t+60
//   row       issue   sums read   here   added (square, added)
//   the last                                            step 0 ..        offset, factor
module columns #(
    parameter int C = 4
) (
    input  logic               clk,
    input  logic               row,                     // of a reduction, in t+2
    input  logic               first,
    input  logic         [2:0] operation,
    input  logic               ends,                    // the last row has passed: from t+4 on
    input  logic         [5:0] step,
    input  logic signed [31:0] sums[C],                 // in t+2
    input  npu_pkg::parameters_t [C-1:0] parameters,
    input  logic signed [15:0] near[C],                 // of `total`, five cycles later
    output logic signed [31:0] total[C],
    output logic signed [31:0] offset[C],
    output logic        [31:0] factor[C]
);
  localparam logic [5:0] SETTLED = 6'd8;  // a step in which `near` is that of the whole total

  logic squares, squares_first;
  logic signed [47:0] added[C];
  logic signed [17:0] apart[C];
  logic [31:0] found[C];

  always_ff @(posedge clk) begin
    squares <= row && operation == npu_pkg::DEVIATION;
    squares_first <= first;
    for (int c = 0; c < C; c++) begin
      apart[c] <= 18'(sums[c] + offset[c]);
      if (squares)
        added[c] <= (squares_first ? 48'(parameters[c].bias) : added[c]) + 48'(36'(apart[c]) * 36'(apart[c]));
      else if (row && operation == npu_pkg::GREATEST)
        added[c] <= first || 48'(sums[c]) > added[c] ? 48'(sums[c]) : added[c];
      else if (row) added[c] <= (first ? 48'sd0 : added[c]) + 48'(sums[c]);
      if (ends && step == SETTLED)
        case (operation)
          npu_pkg::GREATEST: offset[c] <= -added[c][31:0];
          npu_pkg::MEAN: offset[c] <= -32'(near[c]);
          npu_pkg::TOTAL: offset[c] <= 32'sd0;
          default: ;
        endcase
      if (ends && step == 6'd58 && (operation == npu_pkg::DEVIATION || operation == npu_pkg::TOTAL))
        factor[c] <= found[c];
    end
  end

  for (genvar c = 0; c < C; c++) begin : column
    assign total[c] = added[c][31:0];

    root root (
        .clk, .step(ends ? step : 6'd0), .square(operation == npu_pkg::DEVIATION), .sum(added[c][46:0]),
        .scale(parameters[c].scale), .factor(found[c])
    );
  end
endmodule
