// From an int32 sum to an int8, for one column: clamp(round(float32(sum + bias) * scale) + zero point, low, high), as
// ONNX's QLinear operators say: the sum becomes a float32, the product is one, and both are rounded half to even, and
// so is the last step to an integer. Scales are 0 or positive and normal, so no product is subnormal; one that is too
// large for a float32 is beyond `low` or `high` long before. All in integers; one stage a cycle:
//
//   1 sum + bias -> 2 float32 -> 3 product of 24-bit significands -> 4 rounded -> 5 integer, zero point, clamp
module requantise (
    input  logic               clk,
    input  logic signed [31:0] sum,
    input  logic signed [31:0] bias,
    input  logic        [31:0] scale,  // the bits of a float32
    input  logic signed [7:0]  zero,
    input  logic signed [7:0]  low,
    input  logic signed [7:0]  high,
    output logic signed [7:0]  value   // five cycles later
);
  // Stage 1. The sum of both is an int32, or the program is not legal.
  logic signed [31:0] total1;
  // Stage 2. significand * 2^exponent, the significand of 24 bits with its highest set, or 0.
  logic negative2, negative3, negative4;
  logic [23:0] significand2;
  logic [5:0] exponent2, exponent3;
  // Stage 3.
  logic [47:0] product3;
  // Stage 4. significand4 * 2^exponent4
  logic [23:0] significand4;
  logic signed [9:0] exponent4;
  // The parameters on their way.
  logic [31:0] scale1, scale2;
  logic [7:0] power3;
  logic signed [7:0] zero1, zero2, zero3, zero4, low1, low2, low3, low4, high1, high2, high3, high4;

  // Stage 2: the 24 highest bits of the magnitude, rounded half to even by those below.
  logic [31:0] magnitude;
  logic [5:0] length;     // its bits
  logic [31:0] aligned;   // shifted so that its highest bit is bit 31
  logic [24:0] rounded2;

  always_comb begin
    magnitude = total1 < 0 ? -total1 : total1;
    length = 6'd0;
    for (int i = 0; i < 32; i++) if (magnitude[i]) length = 6'(i + 1);
    aligned = magnitude << (6'd32 - length);
    rounded2 = 25'(aligned[31:8]) + 25'(aligned[7] && (|aligned[6:0] || aligned[8]));
  end

  // Stage 4: a product of two numbers of 24 bits has 47 or 48; again the 24 highest, rounded half to even.
  logic high_bit;
  logic [24:0] rounded4;
  logic [47:0] shifted4;

  always_comb begin
    high_bit = product3[47];
    shifted4 = high_bit ? product3 : product3 << 1;
    rounded4 = 25'(shifted4[47:24]) + 25'(shifted4[23] && (|shifted4[22:0] || shifted4[24]));
  end

  // Stage 5: significand4 * 2^exponent4 as an integer, rounded half to even; from 1024 on it is 1024.
  logic [5:0] right;
  logic [23:0] whole;
  logic [24:0] rest;     // what is shifted out, highest bit first
  logic [11:0] near;
  logic signed [12:0] moved;

  always_comb begin
    right = 6'd0;
    whole = 24'd0;
    rest = 25'd0;
    near = 12'd0;
    if (exponent4 > -14) near = significand4 == 0 ? 12'd0 : 12'd1024;
    else if (exponent4 >= -25) begin
      right = 6'(-exponent4);
      {whole, rest} = {significand4, 25'd0} >> right;
      near = whole[11:0] + 12'(rest[24] && (|rest[23:0] || whole[0]));
    end
    moved = (negative4 ? -13'(near) : 13'(near)) + 13'(zero4);
  end

  always_ff @(posedge clk) begin
    total1 <= sum + bias;
    {scale1, zero1, low1, high1} <= {scale, zero, low, high};

    negative2 <= total1 < 0;
    // Rounding up from all ones gives the next power of two.
    significand2 <= rounded2[24] ? 24'h800000 : rounded2[23:0];
    exponent2 <= length + 6'(rounded2[24]);
    {scale2, zero2, low2, high2} <= {scale1, zero1, low1, high1};

    negative3 <= negative2;
    product3 <= significand2 * (scale2[30:23] == 0 ? 48'd0 : {24'd0, 1'b1, scale2[22:0]});
    exponent3 <= exponent2;
    power3 <= scale2[30:23];
    {zero3, low3, high3} <= {zero2, low2, high2};

    negative4 <= negative3;
    significand4 <= rounded4[24] ? 24'h800000 : rounded4[23:0];
    // The sum is significand2 * 2^(exponent3 - 24), the scale's significand is times 2^(power3 - 150), and the
    // product's 24 highest bits are times 2^23, or 2^24.
    exponent4 <= 10'(exponent3) + 10'(power3) - 10'sd151 + 10'(high_bit) + 10'(rounded4[24]);
    {zero4, low4, high4} <= {zero3, low3, high3};

    value <= moved < 13'(low4) ? low4 : moved > 13'(high4) ? high4 : 8'(moved);
  end
endmodule
