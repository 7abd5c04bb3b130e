// What is of lanes turned: that of lane l goes to lane (l + by) mod R, or back from there, by 1, 2, 4 .. lanes as the
// bits of the turn say.
module turn #(
    parameter int R    = 4,
    parameter int BITS = 64,
    parameter bit BACK = 0
) (
    input  logic [R-1:0][BITS-1:0] lanes,
    input  logic           [9:0]   by,     // less than R
    output logic [R-1:0][BITS-1:0] turned
);
  logic [R-1:0][BITS-1:0] halfway;

  function automatic int source(input int lane, input int step);
    return BACK ? (lane + step < R ? lane + step : lane + step - R) : (lane < step ? lane + R - step : lane - step);
  endfunction

  always_comb begin
    turned = lanes;
    halfway = turned;
    for (int k = 0; k < $clog2(R); k++)
      if (by[k]) begin
        halfway = turned;
        for (int l = 0; l < R; l++) turned[l] = halfway[source(l, 1<<k)];
      end
  end
endmodule
