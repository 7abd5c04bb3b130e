// Sums become bytes and go to lanes: a row of accumulators a cycle, all columns at once. Beside them the row's table is
// turned: the entry of lane l goes to lane (l + turn) mod R, and with a carry one row further where it passes the last.
//
//   cycle   t       t+1         t+2 .. t+5    t+6            t+7                 t+8
//   row     issue   sums read   requantised   .. done        columns to lanes    lanes written
//   table                       read in t+5   turned
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
    output logic                [19:0] table_row,               // in t+5
    input  npu_pkg::entry_t [ENTRIES-1:0] entries,              // in t+6
    output logic                       lane_write[R],           // in t+8
    output logic         signed [25:0] lane_address[R],
    output logic                [7:0]  lane_data[R]
);
  localparam int COLUMN = C > 1 ? $clog2(C) : 1;  // bits that select one

  logic busy, go, first, wrap0, wrap1, last;
  logic signed [24:0] lanes_now;
  logic [15:0] sums_now, parameters_now;
  logic [9:0] turn_now, column_now;

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
  place #(R) lanes_place (
      .step(go), .carry(head.carry), .base(head.lanes_base), .stride0(head.lanes_stride0),
      .stride1(head.lanes_stride1), .stride2(head.lanes_stride2), .turn_base(head.turn_base),
      .turn_stride0(head.turn_stride0), .turn_stride1(head.turn_stride1), .turn_stride2(head.turn_stride2),
      .now(lanes_now), .turn(turn_now), .*
  );
  address #(16) parameters_address (
      .step(go), .base(head.parameters_base), .stride0(head.parameters_stride0), .stride1(head.parameters_stride1),
      .stride2(head.parameters_stride2), .now(parameters_now), .*
  );
  address #(10) column_address (
      .step(go), .base(head.column_base), .stride0(head.column_stride0), .stride1(head.column_stride1),
      .stride2(head.column_stride2), .now(column_now), .*
  );

  // What goes along with a row from t+1 on.
  typedef struct packed {
    logic               valid;
    logic               last;
    logic [9:0]         lane_table;
    logic signed [24:0] lanes;
    logic [9:0]         turn;
    logic               carry;
    logic               alike;
    logic [9:0]         column;
  } stage_t;
  stage_t stage[8];

  always_ff @(posedge clk) begin
    busy <= !reset && go && !last;
    sums_read <= !reset && go;
    sums_row <= sums_now;
    parameters_row <= 20'(parameters_now);
    stage[0] <= '{
        valid: go, last: last, lane_table: head.lane_table, lanes: lanes_now, turn: turn_now, carry: head.carry,
        alike: head.alike, column: column_now
    };
    for (int i = 1; i < 8; i++) stage[i] <= stage[i-1];
    if (reset) for (int i = 0; i < 8; i++) stage[i].valid <= 1'b0;
  end

  assign table_row = 20'(stage[4].lane_table);
  assign done = stage[7].valid && stage[7].last;

  // t+2: each column has its own parameters, or all those of one.
  npu_pkg::parameters_t [C-1:0] own;

  always_comb
    for (int c = 0; c < C; c++) own[c] = stage[1].alike ? parameters[COLUMN'(stage[1].column)] : parameters[c];

  logic signed [7:0] value[C];
  requantise #(C) requantise (.clk, .sums, .parameters(own), .value);

  // t+6
  npu_pkg::entry_t [R-1:0] entry, turned;
  turn #(R) turn (.lanes(entries[R-1:0]), .by(stage[5].turn), .turned);

  // t+7
  logic write_next[R];
  logic signed [25:0] address_next[R];
  logic [7:0] data_next[R];

  always_comb
    for (int l = 0; l < R; l++) begin
      write_next[l] = stage[6].valid && entry[l].enable;
      address_next[l] = 26'(stage[6].lanes) + 26'(entry[l].offset) +
          $signed({25'd0, stage[6].carry && 10'(l) < stage[6].turn});  // past the last lane
      data_next[l] = value[COLUMN'(entry[l].select)];
    end

  always_ff @(posedge clk) begin
    entry <= turned;
    lane_write <= write_next;
    lane_address <= address_next;
    lane_data <= data_next;
  end
endmodule
