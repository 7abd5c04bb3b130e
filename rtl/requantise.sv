// From int32 sums to int8, a row of C columns a cycle: clamp(round(float32(sum + bias) * scale) + zero point, low, high),
// as ONNX's QLinear operators say: the sum becomes a float32, the product is one, and both are rounded half to even, and
// so is the last step to an integer. Scales are 0 or normal, so no product is subnormal; one that is too large for a
// float32 is beyond `low` or `high` long before. All in integers; one stage a cycle:
//
//   1 sum + bias -> 2 float32 -> 3 product of 24-bit significands -> 4 rounded -> 5 integer, zero point, clamp
module requantise #(
    parameter int C = 4
) (
    input  logic                               clk,
    input  logic signed                 [31:0] sums[C],
    input  npu_pkg::parameters_t [C-1:0]       parameters,
    output logic signed                 [7:0]  value[C],    // five cycles later
    output logic signed                 [15:0] near[C]      // .. before zero point and clamp: from -32767 to 32767
);
  // What the later stages need of a column's parameters.
  typedef struct packed {
    logic        negative;
    logic [7:0]  power;  // the scale is significand * 2^(power - 150)
    logic [23:0] significand;
    logic signed [7:0] zero;
    logic signed [7:0] low;
    logic signed [7:0] high;
  } own_t;
  // significand * 2^exponent; of a float32 the significand's highest bit is set, unless it is 0.
  typedef struct packed {
    logic negative;
    logic signed [9:0] exponent;
    logic [47:0] significand;
    own_t own;
  } number_t;
  typedef struct packed {
    logic signed [31:0] sum;
    own_t own;
  } sum_t;

  sum_t stage1[C], next1[C];
  number_t stage2[C], next2[C], stage3[C], next3[C], stage4[C], next4[C];
  logic signed [15:0] next5[C];
  logic signed [7:0] next6[C];

  // The sum of both is an int32, or the program is not legal.
  function automatic sum_t with_bias(input logic signed [31:0] sum, input npu_pkg::parameters_t given);
    sum_t result;
    result.sum = sum + given.bias;
    result.own.negative = given.scale[31];
    result.own.power = given.scale[30:23];
    result.own.significand = given.scale[30:23] == 0 ? 24'd0 : {1'b1, given.scale[22:0]};
    result.own.zero = given.zero;
    result.own.low = given.low;
    result.own.high = given.high;
    return result;
  endfunction

  // The 24 highest bits of the magnitude, rounded half to even by those below.
  function automatic number_t as_float(input sum_t given);
    number_t result;
    logic [31:0] magnitude, aligned;
    logic [5:0] length;
    logic [24:0] rounded;
    magnitude = given.sum < 0 ? -given.sum : given.sum;
    length = 6'd0;
    for (int i = 0; i < 32; i++) if (magnitude[i]) length = 6'(i + 1);
    aligned = magnitude << (6'd32 - length);
    rounded = 25'(aligned[31:8]) + 25'(aligned[7] && (|aligned[6:0] || aligned[8]));
    result.negative = (given.sum < 0) != given.own.negative;
    // Rounding up from all ones gives the next power of two.
    result.significand = rounded[24] ? 48'h800000 : 48'(rounded[23:0]);
    result.exponent = 10'(length) - 10'sd24 + 10'(rounded[24]);
    result.own = given.own;
    return result;
  endfunction

  function automatic number_t scaled(input number_t given);
    number_t result;
    result = given;
    result.significand = given.significand * 48'(given.own.significand);
    result.exponent = given.exponent + 10'(given.own.power) - 10'sd150;
    return result;
  endfunction

  // A product of two numbers of 24 bits has 47 or 48; again the 24 highest, rounded half to even.
  function automatic number_t rounded_product(input number_t given);
    number_t result;
    logic [47:0] aligned;
    logic [24:0] rounded;
    aligned = given.significand[47] ? given.significand : given.significand << 1;
    rounded = 25'(aligned[47:24]) + 25'(aligned[23] && (|aligned[22:0] || aligned[24]));
    result = given;
    result.significand = rounded[24] ? 48'h800000 : 48'(rounded[23:0]);
    result.exponent = given.exponent + 10'sd23 + 10'(given.significand[47]) + 10'(rounded[24]);
    return result;
  endfunction

  // As an integer, rounded half to even, from 32767 on 32767.
  function automatic logic signed [15:0] rounded_integer(input number_t given);
    logic [23:0] whole;
    logic [24:0] rest;  // what is shifted out, highest bit first
    logic [15:0] near;
    {whole, rest} = 49'd0;
    near = 16'd0;
    if (given.exponent > -10'sd9) near = given.significand == 0 ? 16'd0 : 16'd32768;
    else if (given.exponent >= -10'sd25) begin
      {whole, rest} = {given.significand[23:0], 25'd0} >> (-given.exponent);
      near = whole[15:0] + 16'(rest[24] && (|rest[23:0] || whole[0]));
    end
    if (near[15]) near = 16'd32767;
    return given.negative ? -$signed(near) : $signed(near);
  endfunction

  // Then the zero point, and the bounds.
  function automatic logic signed [7:0] clamped(input logic signed [15:0] near, input own_t own);
    logic signed [16:0] moved;
    moved = 17'(near) + 17'(own.zero);
    return moved < 17'(own.low) ? own.low : moved > 17'(own.high) ? own.high : 8'(moved);
  endfunction

  always_comb
    for (int c = 0; c < C; c++) begin
      next1[c] = with_bias(sums[c], parameters[c]);
      next2[c] = as_float(stage1[c]);
      next3[c] = scaled(stage2[c]);
      next4[c] = rounded_product(stage3[c]);
      next5[c] = rounded_integer(stage4[c]);
      next6[c] = clamped(next5[c], stage4[c].own);
    end

  always_ff @(posedge clk) begin
    stage1 <= next1;
    stage2 <= next2;
    stage3 <= next3;
    stage4 <= next4;
    near <= next5;
    value <= next6;
  end
endmodule
