// The address of an iteration of `loops`: base + i0 * stride0 + i1 * stride1 + i2 * stride2, with three adders and no
// multiplier: beside the address itself, those where the two outer loops began are kept.
module address #(
    parameter int BITS = 24
) (
    input  logic                   clk,
    input  logic                   step,
    input  logic                   first,
    input  logic                   wrap0,
    input  logic                   wrap1,
    input  logic        [BITS-1:0] base,
    input  logic signed [BITS-1:0] stride0,
    input  logic signed [BITS-1:0] stride1,
    input  logic signed [BITS-1:0] stride2,
    output logic        [BITS-1:0] now
);
  logic [BITS-1:0] kept, kept1, kept2;  // of the next iteration, and where its inner loops begin
  logic [BITS-1:0] now1, now2, next1, next2;

  always_comb begin
    now = first ? base : kept;
    now1 = first ? base : kept1;
    now2 = first ? base : kept2;
    next2 = now2 + stride2;
    next1 = wrap1 ? next2 : now1 + stride1;
  end

  always_ff @(posedge clk)
    if (step) begin
      kept  <= wrap0 ? next1 : now + stride0;
      kept1 <= wrap0 ? next1 : now1;
      kept2 <= wrap0 && wrap1 ? next2 : now2;
    end
endmodule
