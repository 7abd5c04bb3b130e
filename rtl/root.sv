// scale / sum or scale / sqrt(sum), of float32 numbers above 0, rounded half to even in each step as IEEE 754 says, for
// one column: a bit a cycle. `sum` is an integer and is rounded first.
//
//   step   0     1             3 .. 27         28             29 .. 54             55
//          sum   its float32   a root's bits   root rounded   a quotient's bits    factor
module root (
    input  logic        clk,
    input  logic [5:0]  step,
    input  logic        square,   // of the root
    input  logic [46:0] sum,
    input  logic [31:0] scale,
    output logic [31:0] factor    // from the cycle behind step 55 on
);
  // significand * 2^exponent, the highest of 24 bits being set.
  logic [23:0] significand;
  logic signed [9:0] exponent;

  // The 24 highest bits of the sum, rounded half to even.
  logic [5:0] length;
  logic [46:0] aligned;
  logic [24:0] rounded;

  always_comb begin
    length = 6'd0;
    for (int i = 0; i < 47; i++) if (sum[i]) length = 6'(i + 1);
    aligned = sum << (6'd47 - length);
    rounded = 25'(aligned[46:23]) + 25'(aligned[22] && (|aligned[21:0] || aligned[23]));
  end

  // A root of 25 bits, of 50: two of them come to what is left in each step, which stays less than 2^27. No root lies
  // halfway between two float32, so its last bit alone rounds.
  logic [49:0] square_of;
  logic [24:0] found;
  logic [26:0] left;
  logic [28:0] more;
  logic [26:0] trial;
  logic [24:0] up;
  logic signed [9:0] halved;

  always_comb begin
    more = {left, square_of[49:48]};
    trial = {found, 2'b01};
    up = 25'(found[24:1]) + 25'(found[0]);
    // Of what was shifted by one or two, and 24 behind the point.
    halved = (exponent - (exponent[0] ? 10'sd1 : 10'sd2) - 10'sd24) >>> 1;
  end

  // A quotient of 26 bits: 1 or 0, and 25 behind the point.
  logic [25:0] quotient;
  logic [24:0] rest;
  logic past;
  logic [25:0] high;
  logic [24:0] near;
  logic signed [9:0] power;

  always_comb begin
    past = rest >= {1'b0, significand};
    high = quotient[25] ? quotient : quotient << 1;
    near = 25'(high[25:2]) + 25'(high[1] && (high[0] || rest != 0 || high[2]));
    // scale is its significand * 2^(its power - 150), and the quotient's last bit 2^-25.
    power = 10'(scale[30:23]) - 10'sd150 - exponent + 10'sd150 - 10'sd23 - (quotient[25] ? 10'sd0 : 10'sd1) +
        10'(near[24]);
  end

  always_ff @(posedge clk) begin
    if (step == 6'd1) begin
      significand <= rounded[24] ? 24'h800000 : rounded[23:0];
      exponent <= 10'(length) - 10'sd24 + 10'(rounded[24]);
      found <= 25'd0;
      left <= 27'd0;
    end
    if (step == 6'd2 && square) begin
      // An even exponent, and 26 bits or 25: their root has 13, and 12 more behind the point.
      square_of <= {exponent[0] ? {1'b0, significand, 1'b0} : {significand, 2'b00}, 24'd0};
    end
    if (step >= 6'd3 && step < 6'd28 && square) begin
      square_of <= square_of << 2;
      if (more >= 29'(trial)) begin
        left <= 27'(more - 29'(trial));
        found <= {found[23:0], 1'b1};
      end else begin
        left <= 27'(more);
        found <= {found[23:0], 1'b0};
      end
    end
    if (step == 6'd28) begin
      if (square) begin
        significand <= up[24] ? 24'h800000 : up[23:0];
        exponent <= halved + 10'sd1 + $signed({9'd0, up[24]});  // its last bit is dropped
      end
      rest <= {2'b01, scale[22:0]};
      quotient <= 26'd0;
    end
    if (step >= 6'd29 && step < 6'd55) begin
      quotient <= {quotient[24:0], past};
      rest <= 25'((past ? rest - {1'b0, significand} : rest) << 1);
    end
    if (step == 6'd55) factor <= {1'b0, power[7:0], near[24] ? 23'd0 : near[22:0]};
  end
endmodule
