// The array: R rows and C columns of elements, each with a weight and an int32 adder. Activations go right, sums go
// down, one element a cycle, so that row i of a stream meets element (r, c) in cycle t + i + r + c. Lanes come in all
// at once and are delayed here, lane r by r cycles; sums leave column c at t + i + R + c.
//
//        weights   w0    w1    w2       delayed by column
//                   |     |     |
//   lane 0 ------>[0,0]-[0,1]-[0,2]     An element multiplies with its active weight while the next tile's weights go
//   lane 1 -[]--->[1,0]-[1,1]-[1,2]     down the columns, row 0 first. What stops weight r at row r is a token that
//   lane 2 -[][]->[2,0]-[2,1]-[2,2]     starts with row 0 and goes down at half their speed: it meets row r at row r,
//                   |     |     |       and the element keeps what passes as its shadow weight. No row counts.
//                 sums, a cycle apart
//
// `swap` goes with the first row of a stream, element by element like its activations: there the shadow becomes the
// active weight. So tiles follow each other without a drain: row 0 of the next one is right behind the last row.
//
//   cycle          t    t+1   t+2   t+3        R = 3: a tile's weights enter in t .. t+2
//   weights enter  w0   w1    w2    w0'        the next tile's right behind
//   token in row   0          1           2
//   kept at [r,0]  w0         w1          w2
//   swap in row                     0     1    the stream may start in t + R: row 2 keeps w2 in t+4, swaps in t+5
//
// With PIPELINED = 0 there is one weight an element, and what the token keeps is used at once: whoever loads waits
// until the array is empty.
module array #(
    parameter int R = 4,
    parameter int C = 4,
    parameter bit PIPELINED = 1
) (
    input  logic              clk,
    input  logic       [7:0]  lane[R],         // a row's activations, in cycle t
    input  logic              swap,            // with the first row of a stream that takes new weights
    input  logic       [7:0]  weight[C],       // a row of weights
    input  logic              token,           // with row 0 of weights
    output logic signed[31:0] sum[C]           // of column c, in cycle t + R + c
);
  // What stands between the memories and the array: a triangle of registers for lanes, one for weights.
  logic [7:0] lane_delay[R][R], lane_delay_next[R][R];
  logic [7:0] weight_delay[C][C], weight_delay_next[C][C];
  // The registers of elements.
  logic signed [7:0] right[R][C], right_next[R][C];
  logic signed [7:0] down[R][C], down_next[R][C];
  logic signed [7:0] shadow[R][C], shadow_next[R][C];
  logic signed [7:0] active[R][C], active_next[R][C];
  logic signed [31:0] below[R][C], below_next[R][C];
  // Tokens and swaps, by row, a bit a column.
  logic [C-1:0] token_now[R], token_half[R], token_next[R];
  logic [C-1:0] swap_now[R], swap_next[R];

  always_comb begin
    for (int r = 0; r < R; r++)
      for (int k = 0; k < R; k++) lane_delay_next[r][k] = k == 0 ? lane[r] : lane_delay[r][k-1];
    for (int c = 0; c < C; c++)
      for (int k = 0; k < C; k++) weight_delay_next[c][k] = k == 0 ? weight[c] : weight_delay[c][k-1];
  end

  // Row 0's bits come in at column 0 and go right with its activations; every other row's are those of the row above,
  // one cycle later (swap) or two (token).
  always_comb begin
    swap_now[0]  = C'({swap_next[0], swap});
    token_now[0] = C'({token_half[0], token});
    for (int r = 1; r < R; r++) begin
      swap_now[r]  = swap_next[r-1];
      token_now[r] = token_next[r-1];
    end
  end

  always_comb
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++) begin
        automatic logic signed [7:0] activation = c != 0 ? right[r][c-1] : r != 0 ? lane_delay[r][r-1] : lane[0];
        automatic logic signed [7:0] passing = r != 0 ? down[r-1][c] : c != 0 ? weight_delay[c][c-1] : weight[0];
        automatic logic signed [7:0] own = PIPELINED && swap_now[r][c] ? shadow[r][c] : active[r][c];
        right_next[r][c] = activation;
        down_next[r][c] = passing;
        below_next[r][c] = (r != 0 ? below[r-1][c] : 32'sd0) + 32'(activation) * 32'(own);
        shadow_next[r][c] = token_now[r][c] ? passing : shadow[r][c];
        active_next[r][c] = !PIPELINED && token_now[r][c] ? passing : own;
      end

  always_ff @(posedge clk) begin
    lane_delay <= lane_delay_next;
    weight_delay <= weight_delay_next;
    right <= right_next;
    down <= down_next;
    below <= below_next;
    active <= active_next;
    if (PIPELINED) shadow <= shadow_next;
    swap_next <= swap_now;
    for (int r = 0; r < R; r++) begin
      token_half[r] <= token_now[r];
      token_next[r] <= token_half[r];
    end
  end

  assign sum = below[R-1];
endmodule
