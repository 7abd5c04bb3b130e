// Rows from lanes to the array, one a cycle; where their sums go travels with them to the accumulators.
//
//   cycle          t      t+1              t+2          t+3
//   row            issue  table, offsets   lanes read   enters the array
module stream #(
    parameter int R       = 4,
    parameter int ENTRIES = 4
) (
    input  logic                       clk,
    input  logic                       reset,
    input  logic                       valid,
    input  npu_pkg::stream_t           head,
    input  logic                       ready,
    output logic                       pop,
    output logic                       fresh_started,
    output logic                [19:0] table_row,           // whose entries are there in the next cycle
    input  npu_pkg::entry_t [ENTRIES-1:0] entries,
    output logic                       lane_read[R],        // in t+2
    output logic         signed [25:0] lane_address[R],
    output logic                       swap,                // in t+3
    output logic                       sums,                // in t+1: to `accumulators`
    output logic                [15:0] sums_row,
    output logic                       sums_add,
    output logic                       sums_last,
    output logic                       sums_fresh
);
  logic busy, go, first, wrap0, wrap1, last;
  logic [23:0] lanes_now;
  logic [15:0] sums_now;

  always_comb begin
    go = busy || valid && ready;
    first = !busy;
    pop = go && last;
    fresh_started = go && first && head.fresh;
    table_row = 20'(head.lane_table);
  end

  loops loops (.step(go), .count0(head.count0), .count1(head.count1), .count2(head.count2), .*);
  address #(24) lanes_address (
      .step(go), .base(head.lanes_base), .stride0(head.lanes_stride0), .stride1(head.lanes_stride1),
      .stride2(head.lanes_stride2), .now(lanes_now), .*
  );
  address #(16) sums_address (
      .step(go), .base(head.accumulators_base), .stride0(head.accumulators_stride0),
      .stride1(head.accumulators_stride1), .stride2(head.accumulators_stride2), .now(sums_now), .*
  );

  logic [23:0] lanes1;
  logic swap1, swap2;

  logic read_next[R];
  logic signed [25:0] address_next[R];

  always_comb
    for (int l = 0; l < R; l++) begin
      read_next[l] = sums && entries[l].enable;
      address_next[l] = $signed({2'b0, lanes1}) + 26'(entries[l].offset);
    end

  always_ff @(posedge clk) begin
    if (reset) begin
      busy  <= 1'b0;
      sums  <= 1'b0;
      swap1 <= 1'b0;
      swap2 <= 1'b0;
      swap  <= 1'b0;
    end else begin
      busy <= go && !last;
      sums <= go;
      swap1 <= fresh_started;
      swap2 <= swap1;
      swap <= swap2;
    end
    lanes1 <= lanes_now;
    sums_row <= sums_now;
    sums_add <= head.accumulate;
    sums_last <= last;
    sums_fresh <= head.fresh;
    lane_read <= read_next;
    lane_address <= address_next;
  end
endmodule
