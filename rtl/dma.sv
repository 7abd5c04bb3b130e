// Between DRAM and the memories, a beat a cycle, in order. Requests leave four cycles after their issue, whether they
// read or write, so the port has one a cycle; what a beat is for waits in `pending` until its data comes. What reads
// nothing waits there too, as long as a read would (L): so everything is written in the order of the instructions,
// and each is completed a constant time after its end.
//
//   cycle        t       t+1           t+2          t+3      t+4       t+4+L   t+5+L             t+6+L
//   lanes, fill  issue                                       request   data    table, offsets    written
//   spread       issue: i0 may select the table              request   data    table, offsets    written
//   out          issue   table, turn,  lanes read   bytes    request
//   sums         issue   offsets       sums read    bytes    request
module dma #(
    parameter int R       = 4,
    parameter int C       = 4,
    parameter int B       = 8,
    parameter int L       = 0,
    parameter int ENTRIES = 4
) (
    input  logic                       clk,
    input  logic                       reset,
    input  logic                       valid,
    input  npu_pkg::dma_t              head,
    input  logic                       ready,
    output logic                       pop,
    output logic                       done,
    // The memory port.
    output logic                       request,
    output logic                       request_write,
    output logic                [31:0] request_address,
    output logic           [B*8-1:0]   request_data,
    output logic             [B-1:0]   request_bytes,     // which bytes of a write count
    input  logic                       request_ready,     // low: those of three more cycles still come
    input  logic                       response,
    output logic                       response_ready,    // it is taken; always so when it comes after L cycles
    input  logic           [B*8-1:0]   response_data,
    // Lanes and sums to DRAM.
    output logic                [19:0] out_table_row,     // in t
    input  npu_pkg::entry_t [ENTRIES-1:0] out_entries,
    output logic                       out_read[R],       // in t+2
    output logic         signed [25:0] out_address[R],
    input  logic                [7:0]  out_data[R],       // in t+3
    output logic                       sums_read,         // in t+2
    output logic                [15:0] sums_row,
    input  logic signed         [31:0] sums[C],           // in t+3
    // From DRAM to lanes, and to the memories of rows.
    output logic                [19:0] fill_table_row,    // with the data
    input  npu_pkg::entry_t [ENTRIES-1:0] fill_entries,
    output logic                       lane_write[R],
    output logic         signed [25:0] lane_address[R],
    output logic                [7:0]  lane_data[R],
    output logic                       weight_write[C],
    output logic         signed [25:0] weight_row[C],
    output logic                [7:0]  weight_data[C],
    output logic                       tables_write,
    output logic                       parameters_write,
    output logic                       functions_write,
    output logic                [19:0] write_row,
    output logic                [15:0] write_beat,
    output logic             [8*B-1:0] write_data
);
  localparam int WEIGHT_BEATS = (C + B - 1) / B;
  localparam int TABLE_BEATS = (8 * ENTRIES + B - 1) / B;
  localparam int PARAMETER_BEATS = (16 * C + B - 1) / B;
  localparam int FUNCTION_BEATS = (512 + B - 1) / B;
  localparam int SUM_BEATS = (4 * C + B - 1) / B;
  localparam int PLACES = 1 << $clog2(L + 16);  // of `pending`: as many as there may be
  localparam int PLACE = $clog2(PLACES);
  localparam int LANE = R > 1 ? $clog2(R) : 1;  // bits that select one
  localparam int COLUMN = C > 1 ? $clog2(C) : 1;
  localparam int BYTE = B > 1 ? $clog2(B) : 1;

  // What a beat is for.
  typedef struct packed {
    logic               valid;
    logic [3:0]         operation;
    logic               last;    // of its instruction
    logic [31:0]        dram;
    logic [19:0]        row;     // of weights, tables, parameters or accumulators
    logic [15:0]        beat;    // of that row
    logic signed [24:0] lanes;
    logic [9:0]         lane_table;
    logic [9:0]         turn;
    logic               carry;
  } beat_t;

  // Issue: the beats of a row are a loop within the three of the instruction.
  logic busy, go, step, first, wrap0, wrap1, loops_last, last, whole_rows;
  logic [15:0] beats, beat_kept, beat_now, count0;
  logic [31:0] dram_row;
  logic [31:0] row_stride;
  logic [19:0] row_base, row_now;
  logic signed [24:0] lanes_now;
  logic [15:0] sums_now;
  logic [9:0] turn_now;
  logic [PLACE:0] used;

  always_comb begin
    whole_rows = head.operation inside {npu_pkg::WEIGHTS, npu_pkg::TABLES, npu_pkg::PARAMETERS, npu_pkg::FUNCTIONS};
    case (head.operation)
      npu_pkg::WEIGHTS: {beats, count0, row_base} = {16'(WEIGHT_BEATS), head.rows, head.row};
      npu_pkg::TABLES: {beats, count0, row_base} = {16'(TABLE_BEATS), head.rows, 20'(head.lane_table)};
      npu_pkg::PARAMETERS: {beats, count0, row_base} = {16'(PARAMETER_BEATS), head.rows, head.row};
      npu_pkg::FUNCTIONS: {beats, count0, row_base} = {16'(FUNCTION_BEATS), head.rows, head.row};
      npu_pkg::SUMS: {beats, count0, row_base} = {16'(SUM_BEATS), head.count0, 20'd0};
      default: {beats, count0, row_base} = {16'd1, head.count0, 20'd0};
    endcase
    row_stride = whole_rows ? 32'(beats) * 32'(B) : head.dram_stride0;
    go = (busy || valid && ready) && request_ready && int'(used) < PLACES - 8;
    first = !busy;
    beat_now = first ? 16'd0 : beat_kept;
    step = go && beat_now == beats - 16'd1;
    last = step && loops_last;
    pop = last;
    out_table_row = 20'(head.lane_table);
  end

  // The loops count rows: their first iteration lasts until its last beat.
  logic first_row, row_begun;
  assign first_row = !row_begun;

  loops loops (
      .clk(clk), .step(step), .first(first_row), .count0(count0), .count1(whole_rows ? 16'd1 : head.count1),
      .count2(whole_rows ? 16'd1 : head.count2), .wrap0(wrap0), .wrap1(wrap1), .last(loops_last)
  );
  address #(32) dram_address (
      .clk(clk), .step(step), .first(first_row), .wrap0(wrap0), .wrap1(wrap1), .base(head.dram_base),
      .stride0(row_stride), .stride1(head.dram_stride1), .stride2(head.dram_stride2), .now(dram_row)
  );
  place #(R) lanes_place (
      .clk(clk), .step(step), .first(first_row), .wrap0(wrap0), .wrap1(wrap1), .carry(head.carry),
      .base(head.lanes_base), .stride0(head.lanes_stride0), .stride1(head.lanes_stride1),
      .stride2(head.lanes_stride2), .turn_base(head.turn_base), .turn_stride0(head.turn_stride0),
      .turn_stride1(head.turn_stride1), .turn_stride2(head.turn_stride2), .now(lanes_now), .turn(turn_now)
  );
  address #(16) sums_address (
      .clk(clk), .step(step), .first(first_row), .wrap0(wrap0), .wrap1(wrap1), .base(head.accumulators_base),
      .stride0(head.accumulators_stride0), .stride1(head.accumulators_stride1), .stride2(head.accumulators_stride2),
      .now(sums_now)
  );
  address #(20) row_address (
      .clk(clk), .step(step), .first(first_row), .wrap0(wrap0), .wrap1(wrap1), .base(row_base), .stride0(20'sd1),
      .stride1(20'sd0), .stride2(20'sd0), .now(row_now)
  );

  always_ff @(posedge clk)
    if (reset) begin
      busy <= 1'b0;
      row_begun <= 1'b0;
    end else if (go) begin
      busy <= !last;
      beat_kept <= step ? 16'd0 : beat_now + 16'd1;
      if (step) row_begun <= !last;
    end

  // t+1 .. t+4
  beat_t stage[4], issued;
  logic [LANE-1:0] byte_lane[B], byte_lane2[B], byte_lane3[B];  // of each byte of a beat, in t+1 .. t+3
  logic [B-1:0] byte_enable, byte_enable2, byte_enable3;

  always_comb begin
    issued.valid = go;
    issued.operation = head.operation;
    issued.last = last;
    issued.dram = dram_row + 32'(beat_now) * 32'(B);
    issued.row = head.operation == npu_pkg::SUMS ? 20'(sums_now) : row_now;
    issued.beat = beat_now;
    issued.lanes = lanes_now;
    issued.lane_table = head.lane_table + (head.increment ? row_now[9:0] : 10'd0);  // row_now is i0 there
    issued.turn = turn_now;
    issued.carry = head.carry;
  end

  always_ff @(posedge clk)
    for (int i = 0; i < 4; i++)
      if (reset) stage[i] <= '0;
      else stage[i] <= i == 0 ? issued : stage[i-1];

  // In t+1 every byte of a beat says which lane it takes, and the lane gets its address; one lane has one.
  logic out_read_next[R];
  logic signed [25:0] out_address_next[R];

  logic [LANE:0] turned[B];  // the lane that a byte selects, before R is taken off
  logic past[B];

  always_comb begin
    for (int l = 0; l < R; l++) begin
      out_read_next[l] = 1'b0;
      out_address_next[l] = 26'sd0;
    end
    for (int j = 0; j < B; j++) begin
      turned[j] = {1'b0, LANE'(out_entries[j].select)} + {1'b0, LANE'(stage[0].turn)};
      past[j] = turned[j] >= (LANE + 1)'(R);
      byte_lane[j] = LANE'(past[j] ? turned[j] - (LANE + 1)'(R) : turned[j]);
      byte_enable[j] = out_entries[j].enable;
      if (stage[0].valid && stage[0].operation == npu_pkg::OUT && byte_enable[j]) begin
        out_read_next[byte_lane[j]] = 1'b1;
        out_address_next[byte_lane[j]] = 26'(stage[0].lanes) + 26'(out_entries[j].offset) +
            $signed({25'd0, stage[0].carry && past[j]});
      end
    end
  end

  always_ff @(posedge clk) begin
    out_read <= out_read_next;
    out_address <= out_address_next;
    byte_lane2 <= byte_lane;
    byte_lane3 <= byte_lane2;
    byte_enable2 <= byte_enable;
    byte_enable3 <= byte_enable2;
  end

  assign sums_read = stage[1].valid && stage[1].operation == npu_pkg::SUMS;
  assign sums_row = stage[1].row[15:0];

  // In t+3 the bytes of a beat are chosen.
  logic [8*B-1:0] data_next;
  logic [B-1:0] bytes_next;

  always_comb
    for (int j = 0; j < B; j++) begin
      automatic logic [15:0] place = stage[2].beat * 16'(B) + 16'(j);  // among the bytes of a row of sums
      if (stage[2].operation == npu_pkg::SUMS) begin
        bytes_next[j] = int'(place) < 4 * C;
        data_next[8*j+:8] = sums[COLUMN'(place>>2)][8*int'(place[1:0])+:8];
      end else begin
        bytes_next[j] = byte_enable3[j];
        data_next[8*j+:8] = out_data[byte_lane3[j]];
      end
    end

  always_ff @(posedge clk) begin
    request_data <= data_next;
    request_bytes <= bytes_next;
  end

  always_comb begin
    request = stage[3].valid && stage[3].operation != npu_pkg::FILL;
    request_write = stage[3].operation == npu_pkg::OUT || stage[3].operation == npu_pkg::SUMS;
    request_address = stage[3].dram;
  end

  // Behind the port: a queue of what was asked for, written in t+3 so that it is there in t+4, when L may be 0.
  (* ram_style = "distributed" *) beat_t pending[PLACES];
  (* ram_style = "distributed" *) logic [15:0] due[PLACES];  // the cycle in which what reads nothing goes on
  logic [15:0] cycle;
  logic [PLACE-1:0] oldest, newest;
  beat_t front, back;
  logic take, reads, fills;

  always_comb begin
    front = pending[oldest];
    reads = front.operation inside {npu_pkg::WEIGHTS, npu_pkg::LANES, npu_pkg::TABLES, npu_pkg::PARAMETERS,
                                    npu_pkg::SPREAD, npu_pkg::FUNCTIONS};
    response_ready = oldest != newest && reads;
    take = oldest != newest && (reads ? response : $signed(cycle - due[oldest]) >= 0);
    fill_table_row = 20'(front.lane_table);
    // Counted from the issue on, so that what is on its way has a place.
    used = (PLACE + 1)'(PLACE'(newest - oldest)) + (PLACE + 1)'(stage[0].valid) + (PLACE + 1)'(stage[1].valid) +
        (PLACE + 1)'(stage[2].valid);
  end

  logic [8*B-1:0] data;

  always_ff @(posedge clk) begin
    if (reset) begin
      cycle <= '0;
      oldest <= '0;
      newest <= '0;
      back.valid <= 1'b0;
    end else begin
      cycle <= cycle + 16'd1;
      if (stage[2].valid) begin
        pending[newest] <= stage[2];
        due[newest] <= cycle + 16'(L + 1);
        newest <= newest + 1'b1;
      end
      if (take) oldest <= oldest + 1'b1;
      back <= front;
      back.valid <= take;
    end
    data <= reads ? response_data : '0;
  end

  // t+5+L: where it goes; t+6+L: written.
  always_comb fills = back.valid && (back.operation == npu_pkg::LANES || back.operation == npu_pkg::FILL);

  npu_pkg::entry_t [R-1:0] entry;
  turn #(R) turn (.lanes(fill_entries[R-1:0]), .by(back.turn), .turned(entry));

  logic write_next[R];
  logic signed [25:0] address_next[R];
  logic [7:0] lane_next[R];

  always_comb
    for (int l = 0; l < R; l++) begin
      write_next[l] = fills && entry[l].enable;
      address_next[l] = 26'(back.lanes) + 26'(entry[l].offset) +
          $signed({25'd0, back.carry && 10'(l) < back.turn});  // past the last lane
      lane_next[l] = back.operation == npu_pkg::FILL ? entry[l].select[7:0] :
          data[8*int'(BYTE'(entry[l].select))+:8];
    end

  // A beat of a row of weights has a byte for each of its own columns; of one that is spread each takes what it selects.
  logic weight_write_next[C];
  logic signed [25:0] weight_row_next[C];
  logic [7:0] weight_next[C];
  logic whole;

  always_comb begin
    whole = back.operation == npu_pkg::WEIGHTS;
    for (int c = 0; c < C; c++) begin
      weight_write_next[c] = back.valid && (whole ? int'(back.beat) == c / B :
          back.operation == npu_pkg::SPREAD && fill_entries[c].enable);
      weight_row_next[c] = (whole ? 26'(back.row) : 26'(back.lanes)) + (whole ? 26'sd0 : 26'(fill_entries[c].offset));
      weight_next[c] = data[8*int'(whole ? BYTE'(c%B) : BYTE'(fill_entries[c].select))+:8];
    end
  end

  always_ff @(posedge clk) begin
    lane_write <= write_next;
    lane_address <= address_next;
    lane_data <= lane_next;
    weight_write <= weight_write_next;
    weight_row <= weight_row_next;
    weight_data <= weight_next;
    tables_write <= back.valid && back.operation == npu_pkg::TABLES;
    parameters_write <= back.valid && back.operation == npu_pkg::PARAMETERS;
    functions_write <= back.valid && back.operation == npu_pkg::FUNCTIONS;
    write_row <= back.row;
    write_beat <= back.beat;
    write_data <= data;
    done <= !reset && back.valid && back.last;
  end
endmodule
