// A lane table turned: the entry of lane l goes to lane (l + turn) mod R, by 1, 2, 4 .. lanes as the bits of the turn say.
module turn #(
    parameter int R = 4
) (
    input  npu_pkg::entry_t [R-1:0] entries,
    input  logic            [9:0]   by,       // less than R
    output npu_pkg::entry_t [R-1:0] turned
);
  npu_pkg::entry_t [R-1:0] halfway;

  always_comb begin
    turned = entries;
    halfway = turned;
    for (int k = 0; k < $clog2(R); k++)
      if (by[k]) begin
        halfway = turned;
        for (int l = 0; l < R; l++) turned[l] = halfway[l<(1<<k)?l+R-(1<<k) : l-(1<<k)];
      end
  end
endmodule
