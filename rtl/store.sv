// Sums become bytes and go to lanes: a row of accumulators a cycle, all columns at once. Beside them the row's table is
// turned: the entry of lane l goes to lane (l + turn) mod R, and with a carry one row further where it passes the last.
// Operations on columns take the same way: rows pass by `columns`, which adds them up, or they come back as other rows.
//
//   cycle   t       t+1         t+2 .. t+6    t+7          t+8                     t+9
//   row     issue   sums read   requantised   .. done      columns to lanes        lanes written
//                                             a function   .. its value, or sums written
//   table                       read in t+6   turned
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
    output logic                       put,                     // in t+8: a row of sums in place of another
    output logic                [15:0] put_row,
    output logic signed         [31:0] put_sums[C],
    output logic                [3:0]  function_row,            // in t+7
    output logic signed         [7:0]  function_byte[C],
    input  logic signed         [15:0] function_data[C],        // in t+8
    output logic                [19:0] table_row,               // in t+6
    input  npu_pkg::entry_t [ENTRIES-1:0] entries,              // in t+7
    output logic                       lane_write[R],           // in t+9
    output logic         signed [25:0] lane_address[R],
    output logic                [7:0]  lane_data[R]
);
  localparam int COLUMN = C > 1 ? $clog2(C) : 1;  // bits that select one

  logic busy, go, first, wrap0, wrap1, last;
  logic signed [24:0] lanes_now;
  logic [15:0] sums_now, parameters_now;
  logic [9:0] turn_now, column_now;

  // An operation on columns is not over with its last row: `rest` counts what is left of it.
  localparam logic [6:0] TAIL = 7'd64;
  localparam logic [6:0] DRAIN = 7'd8;
  logic reduces, rewrites;
  logic [6:0] rest;

  always_comb begin
    reduces = head.operation inside {npu_pkg::GREATEST, npu_pkg::MEAN, npu_pkg::DEVIATION, npu_pkg::TOTAL};
    rewrites = head.operation inside {npu_pkg::SCALE, npu_pkg::APPLY};
    go = rest == 0 && (busy || valid && ready);
    first = !busy;
    pop = rest == 7'd1 || go && last && !reduces && !rewrites;
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
    logic               valid;   // a row for lanes
    logic               puts;    // .. or for accumulators
    logic               reduces;
    logic               first;
    logic               ends;
    logic [2:0]         operation;
    logic [15:0]        row;
    logic               applies;
    logic [3:0]         bytes;   // which function of them
    logic [9:0]         lane_table;
    logic signed [24:0] lanes;
    logic [9:0]         turn;
    logic               carry;
    logic               alike;
    logic [9:0]         column;
  } stage_t;
  stage_t stage[9];

  always_ff @(posedge clk) begin
    busy <= !reset && go && !last;
    if (reset) rest <= 7'd0;
    else if (rest != 0) rest <= rest - 7'd1;
    else if (go && last) rest <= reduces ? TAIL : rewrites ? DRAIN : 7'd0;
    sums_read <= !reset && go;
    sums_row <= sums_now;
    if (go) parameters_row <= 20'(parameters_now);  // and until an operation ends
    stage[0] <= '{
        valid: go && !reduces && !rewrites, puts: go && rewrites, reduces: go && reduces, first: first, ends: pop,
        operation: head.operation, row: sums_now, applies: head.applies || head.operation == npu_pkg::APPLY,
        bytes: head.lookup, lane_table: head.lane_table, lanes: lanes_now, turn: turn_now, carry: head.carry,
        alike: head.alike, column: column_now
    };
    for (int i = 1; i < 9; i++) stage[i] <= stage[i-1];
    if (reset) for (int i = 0; i < 9; i++) {stage[i].valid, stage[i].puts, stage[i].reduces, stage[i].ends} <= '0;
  end

  assign table_row = 20'(stage[5].lane_table);
  assign done = stage[8].ends;

  // t+2: each column has its own parameters, or all those of one; or its registers. When the rows of a reduction have
  // passed, what they add up to goes the same way once more.
  npu_pkg::parameters_t [C-1:0] own;
  logic signed [31:0] passing[C], total[C], offset[C];
  logic [31:0] factor[C];
  logic ends;
  logic [5:0] step;

  always_comb begin
    ends = reduces && rest != 0 && rest <= TAIL - 7'd3;
    step = 6'(TAIL - 7'd3 - rest);
    for (int c = 0; c < C; c++) begin
      passing[c] = ends ? total[c] : sums[c];
      own[c] = stage[1].alike ? parameters[COLUMN'(stage[1].column)] : parameters[c];
      if (ends) own[c].bias = 32'sd0;
      else if (stage[1].puts) own[c].bias = offset[c];
      if (stage[1].puts && stage[1].operation == npu_pkg::SCALE) own[c].scale = factor[c];
    end
  end

  logic signed [7:0] value[C];
  logic signed [15:0] near[C], near_then[C];
  requantise #(C) requantise (.clk, .sums(passing), .parameters(own), .value, .near);

  columns #(C) columns (
      .clk, .row(stage[1].reduces), .first(stage[1].first), .operation(reduces ? head.operation : 3'd0), .ends, .step,
      .sums, .parameters, .near, .total, .offset, .factor
  );

  // t+7
  npu_pkg::entry_t [R-1:0] entry, turned;
  turn #(R) turn (.lanes(entries[R-1:0]), .by(stage[6].turn), .turned);

  assign function_row = stage[6].bytes;
  assign function_byte = value;

  // t+8
  logic signed [7:0] value_then[C], result[C];

  always_comb begin
    put = stage[7].puts;
    put_row = stage[7].row;
    for (int c = 0; c < C; c++) begin
      result[c] = stage[7].applies ? function_data[c][7:0] : value_then[c];
      put_sums[c] = 32'(stage[7].applies ? function_data[c] : near_then[c]);
    end
  end

  logic write_next[R];
  logic signed [25:0] address_next[R];
  logic [7:0] data_next[R];

  always_comb
    for (int l = 0; l < R; l++) begin
      write_next[l] = stage[7].valid && entry[l].enable;
      address_next[l] = 26'(stage[7].lanes) + 26'(entry[l].offset) +
          $signed({25'd0, stage[7].carry && 10'(l) < stage[7].turn});  // past the last lane
      data_next[l] = result[COLUMN'(entry[l].select)];
    end

  always_ff @(posedge clk) begin
    entry <= turned;
    value_then <= value;
    near_then <= near;
    lane_write <= write_next;
    lane_address <= address_next;
    lane_data <= data_next;
  end
endmodule
