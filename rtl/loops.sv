// Three nested loops, the first innermost. `step` is an iteration; `first` says that it is the first of an
// instruction, whose counters then count as 0 whatever they hold, so that none is lost between two instructions.
module loops (
    input  logic        clk,
    input  logic        step,
    input  logic        first,
    input  logic [15:0] count0,
    input  logic [15:0] count1,
    input  logic [15:0] count2,
    output logic        wrap0,  // this iteration is the last of the innermost loop
    output logic        wrap1,  // .. and of the middle one
    output logic        last    // .. and of all
);
  logic [15:0] kept0, kept1, kept2;
  logic [15:0] now0, now1, now2;

  always_comb begin
    now0 = first ? 16'd0 : kept0;
    now1 = first ? 16'd0 : kept1;
    now2 = first ? 16'd0 : kept2;
    wrap0 = now0 == count0 - 16'd1;
    wrap1 = now1 == count1 - 16'd1;
    last = wrap0 && wrap1 && now2 == count2 - 16'd1;
  end

  always_ff @(posedge clk)
    if (step) begin
      kept0 <= wrap0 ? 16'd0 : now0 + 16'd1;
      kept1 <= !wrap0 ? now1 : wrap1 ? 16'd0 : now1 + 16'd1;
      kept2 <= wrap0 && wrap1 ? now2 + 16'd1 : now2;
    end
endmodule
