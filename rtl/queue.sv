// The instructions of one unit, in order. The host writes a whole one in a cycle. The unit sees the oldest one until it
// pops it, and in the next cycle the one behind it, so that instructions of a single cycle follow each other without a
// gap. The memory is read without a clock: a register file.
module queue #(
    parameter int WORDS = 1,
    parameter int DEPTH = 16
) (
    input  logic                     clk,
    input  logic                     reset,
    // The host's side.
    input  logic                     write,
    input  logic [64*WORDS-1:0]      data,
    output logic [31:0]              free,   // instructions that still fit
    // The unit's side.
    input  logic                     pop,
    output logic                     valid,
    output logic [64*WORDS-1:0]      head
);
  localparam int BITS = DEPTH > 1 ? $clog2(DEPTH) : 1;

  (* ram_style = "distributed" *) logic [64*WORDS-1:0] memory[DEPTH];
  logic [BITS-1:0] first, next;
  logic [BITS:0] used;

  assign valid = used != 0;
  assign head = memory[first];
  assign free = 32'(DEPTH) - 32'(used);

  function automatic logic [BITS-1:0] after(input logic [BITS-1:0] place);
    return int'(place) == DEPTH - 1 ? '0 : place + 1'b1;
  endfunction

  always_ff @(posedge clk) begin
    if (reset) begin
      first <= '0;
      next  <= '0;
      used  <= '0;
    end else begin
      if (write) begin
        memory[next] <= data;
        next <= after(next);
      end
      if (pop) first <= after(first);
      used <= used + (BITS + 1)'(write) - (BITS + 1)'(pop);
    end
  end
endmodule
