// Sums become bytes and go to lanes: a row of accumulators a cycle, all columns at once.
//
//   cycle   t       t+1         t+2 .. t+6    t+7                 t+8
//   row     issue   sums read   requantised   columns to lanes    lanes written
module store #(
    parameter int R       = 4,
    parameter int C       = 4,
    parameter int ENTRIES = 4
) (
    input  logic                       clk,
    input  logic                       reset,
    input  logic                       valid,
    input  npu_pkg::store_t            head,
    input  logic                       ready,
    output logic                       pop,
    output logic                       done,
    output logic                       sums_read,               // in t+1
    output logic                [15:0] sums_row,
    input  logic signed         [31:0] sums[C],                 // in t+2
    output logic                [19:0] parameters_row,          // in t+1
    input  npu_pkg::parameters_t [C-1:0] parameters,            // in t+2
    output logic                [19:0] table_row,               // in t+6
    input  npu_pkg::entry_t [ENTRIES-1:0] entries,              // in t+7
    output logic                       lane_write[R],           // in t+8
    output logic         signed [25:0] lane_address[R],
    output logic                [7:0]  lane_data[R]
);
  logic busy, go, first, wrap0, wrap1, last;
  logic [23:0] lanes_now;
  logic [15:0] sums_now;

  always_comb begin
    go = busy || valid && ready;
    first = !busy;
    pop = go && last;
  end

  loops loops (.step(go), .count0(head.count0), .count1(head.count1), .count2(head.count2), .*);
  address #(16) sums_address (
      .step(go), .base(head.accumulators_base), .stride0(head.accumulators_stride0),
      .stride1(head.accumulators_stride1), .stride2(head.accumulators_stride2), .now(sums_now), .*
  );
  address #(24) lanes_address (
      .step(go), .base(head.lanes_base), .stride0(head.lanes_stride0), .stride1(head.lanes_stride1),
      .stride2(head.lanes_stride2), .now(lanes_now), .*
  );

  // What goes along with a row from t+1 on.
  typedef struct packed {
    logic        valid;
    logic        last;
    logic [9:0]  lane_table;
    logic [23:0] lanes;
  } stage_t;
  stage_t stage[8];

  always_ff @(posedge clk) begin
    busy <= !reset && go && !last;
    sums_read <= !reset && go;
    sums_row <= sums_now;
    parameters_row <= 20'(head.parameters);
    stage[0] <= '{valid: go, last: last, lane_table: head.lane_table, lanes: lanes_now};
    for (int i = 1; i < 8; i++) stage[i] <= stage[i-1];
    if (reset) for (int i = 0; i < 8; i++) stage[i].valid <= 1'b0;
  end

  assign table_row = 20'(stage[5].lane_table);
  assign done = stage[7].valid && stage[7].last;

  logic signed [7:0] value[C];
  requantise #(C) requantise (.clk, .sums, .parameters, .value);

  logic write_next[R];
  logic signed [25:0] address_next[R];
  logic [7:0] data_next[R];

  always_comb
    for (int l = 0; l < R; l++) begin
      write_next[l] = stage[6].valid && entries[l].enable;
      address_next[l] = $signed({2'b0, stage[6].lanes}) + 26'(entries[l].offset);
      data_next[l] = value[int'(entries[l].select)%C];
    end

  always_ff @(posedge clk) begin
    lane_write <= write_next;
    lane_address <= address_next;
    lane_data <= data_next;
  end
endmodule
