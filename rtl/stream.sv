// Rows from lanes to the array, one a cycle; where their sums go travels with them to the accumulators. The table is
// turned to the lanes before they are read, and what they hold is turned back: where entry l passed the last lane, it
// was of the next row.
//
//   cycle          t      t+1                      t+2          t+3
//   row            issue  table, turned, offsets   lanes read   turned back, enters the array
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
    input  logic                [7:0]  lane_data[R],        // in t+3
    output logic                [7:0]  row[R],              // in t+3: to the array
    output logic                       swap,
    output logic                       sums,                // in t+1: to `accumulators`
    output logic                [15:0] sums_row,
    output logic                       sums_add,
    output logic                       sums_greatest,
    output logic                       sums_last,
    output logic                       sums_fresh
);
  logic busy, go, first, wrap0, wrap1, last;
  logic signed [24:0] lanes_now;
  logic [9:0] turn_now;
  logic [15:0] sums_now;

  always_comb begin
    go = busy || valid && ready;
    first = !busy;
    pop = go && last;
    fresh_started = go && first && head.fresh;
    table_row = 20'(head.lane_table);
  end

  loops loops (.step(go), .count0(head.count0), .count1(head.count1), .count2(head.count2), .*);
  place #(R) lanes_place (
      .step(go), .carry(1'b1), .base(head.lanes_base), .stride0(head.lanes_stride0), .stride1(head.lanes_stride1),
      .stride2(head.lanes_stride2), .turn_base(head.turn_base), .turn_stride0(head.turn_stride0),
      .turn_stride1(head.turn_stride1), .turn_stride2(head.turn_stride2), .now(lanes_now), .turn(turn_now), .*
  );
  address #(16) sums_address (
      .step(go), .base(head.accumulators_base), .stride0(head.accumulators_stride0),
      .stride1(head.accumulators_stride1), .stride2(head.accumulators_stride2), .now(sums_now), .*
  );

  logic signed [24:0] lanes1;
  logic [9:0] turn1, turn2, turn3;
  logic swap1, swap2;

  // t+1
  npu_pkg::entry_t [R-1:0] entry;
  turn #(R) turn (.lanes(entries[R-1:0]), .by(turn1), .turned(entry));

  logic read_next[R];
  logic signed [25:0] address_next[R];

  always_comb
    for (int l = 0; l < R; l++) begin
      read_next[l] = sums && entry[l].enable;
      address_next[l] = 26'(lanes1) + 26'(entry[l].offset) + $signed({25'd0, 10'(l) < turn1});
    end

  // t+3
  logic [R-1:0][7:0] held, back;
  turn #(R, 8, 1) turn_back (.lanes(held), .by(turn3), .turned(back));

  always_comb
    for (int l = 0; l < R; l++) begin
      held[l] = lane_data[l];
      row[l] = back[l];
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
    turn1 <= turn_now;
    turn2 <= turn1;
    turn3 <= turn2;
    sums_row <= sums_now;
    sums_add <= head.accumulate;
    sums_greatest <= head.greatest;
    sums_last <= last;
    sums_fresh <= head.fresh;
    lane_read <= read_next;
    lane_address <= address_next;
  end
endmodule
