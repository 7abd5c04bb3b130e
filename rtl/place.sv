// Where in the lanes an iteration of `loops` is: an address, and a turn less than R, each of a base and three strides
// as `address` counts them. The turn counts modulo R: each adder takes R off once where it is reached. With `carry` it
// is then added to the address, so that both are one number of base R. A bit more than the bases have tells addresses
// below 0, of which a table's offsets may lead back.
module place #(
    parameter int R = 4
) (
    input  logic               clk,
    input  logic               step,
    input  logic               first,
    input  logic               wrap0,
    input  logic               wrap1,
    input  logic               carry,
    input  logic        [23:0] base,
    input  logic signed [23:0] stride0,
    input  logic signed [23:0] stride1,
    input  logic signed [23:0] stride2,
    input  logic        [9:0]  turn_base,     // less than R, as its strides are
    input  logic        [9:0]  turn_stride0,
    input  logic        [9:0]  turn_stride1,
    input  logic        [9:0]  turn_stride2,
    output logic signed [24:0] now,
    output logic        [9:0]  turn
);
  typedef struct packed {
    logic signed [24:0] lanes;
    logic [9:0]         turn;
  } place_t;

  function automatic place_t plus(input place_t place, input logic signed [23:0] stride, input logic [9:0] turns);
    place_t found;
    logic [10:0] sum;
    logic past;
    sum = {1'b0, place.turn} + {1'b0, turns};
    past = sum >= 11'(R);
    found.turn = 10'(past ? sum - 11'(R) : sum);
    found.lanes = place.lanes + 25'(stride) + $signed({24'd0, past && carry});
    return found;
  endfunction

  place_t begins, own, kept, kept1, kept2;  // of the next iteration, and where its inner loops begin
  place_t now1, now2, next1, next2;

  always_comb begin
    begins.lanes = $signed({1'b0, base});
    begins.turn = turn_base;
    own = first ? begins : kept;
    now1 = first ? begins : kept1;
    now2 = first ? begins : kept2;
    next2 = plus(now2, stride2, turn_stride2);
    next1 = wrap1 ? next2 : plus(now1, stride1, turn_stride1);
    now = own.lanes;
    turn = own.turn;
  end

  always_ff @(posedge clk)
    if (step) begin
      kept  <= wrap0 ? next1 : plus(own, stride0, turn_stride0);
      kept1 <= wrap0 ? next1 : now1;
      kept2 <= wrap0 && wrap1 ? next2 : now2;
    end
endmodule
