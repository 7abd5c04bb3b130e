// The machine: four units with a queue each, their memories, and the two ports. README.md has the registers of the host
// port and the rules of the memory port; the cycles in the units' comments are those of glenside.npu.model.cycle_model.
//
//              host port                                memory port
//                 |                                          |
//     +-----------+-----------+-------------+           +----+----+
//     | queue     | queue     | queue       | queue     |   dma   |---> weights, tables, parameters
//     v           v           v             v           +----+----+
//    load       stream      store           dma              |
//     |           |           |                              |
//   weights --> array --> accumulators --> store --> lanes <-+  (lanes --> stream, dma)
//
// Order between units is by tokens alone: each unit counts what it has completed, and an instruction starts when the
// counts have reached those that it names.
module npu #(
    parameter int R            = 4,
    parameter int C            = 4,
    parameter bit PIPELINED    = 1,
    parameter int DEPTH        = 32,   // bytes of a lane
    parameter int WEIGHT_ROWS  = 8,
    parameter int ACCUMULATORS = 16,
    parameter int PARAMETERS   = 2,    // rows
    parameter int TABLES       = 8,
    parameter int FUNCTIONS    = 2,
    parameter int INSTRUCTIONS = 16,   // of each queue
    parameter int B            = 8,    // bytes of a beat
    parameter int L            = 0     // cycles from a request to its data
) (
    input  logic           clk,
    input  logic           reset,
    // The host port: a register in a cycle.
    input  logic           host_write,
    input  logic [9:0]     host_address,
    input  logic [511:0]   host_data,        // an instruction; of a register the lowest 64 bits
    output logic [63:0]    host_value,       // of the register at the address, in the same cycle
    output logic           done,             // for an interrupt
    output logic [3:0]     completions,      // of dma, load, stream, store: a pulse for each instruction
    // The memory port.
    output logic           request,
    output logic           request_write,
    output logic [31:0]    request_address,
    output logic [B*8-1:0] request_data,
    output logic [B-1:0]   request_bytes,
    input  logic           request_ready,
    input  logic           response,
    output logic           response_ready,
    input  logic [B*8-1:0] response_data
);
  localparam int ENTRIES = R > C ? (R > B ? R : B) : (C > B ? C : B);
  localparam int TABLE_BEATS = (8 * ENTRIES + B - 1) / B;
  localparam int PARAMETER_BEATS = (16 * C + B - 1) / B;
  // Units, in the order of their registers.
  localparam int DMA = 0;
  localparam int LOAD = 1;
  localparam int STREAM = 2;
  localparam int STORE = 3;

  // Tokens.
  logic running;
  logic [63:0] cycles, starved;
  logic [19:0] total[4], completed[4], taken[4];
  logic [19:0] loads_started, loads_ended, fresh_started, fresh_completed;
  logic [8:0] faults;
  logic [3:0] valid, ready, pop;

  function automatic logic reached(
      input logic [19:0] wait_dma, input logic [19:0] wait_load, input logic [19:0] wait_stream,
      input logic [19:0] wait_store);
    return completed[DMA] >= wait_dma && completed[LOAD] >= wait_load && completed[STREAM] >= wait_stream &&
        completed[STORE] >= wait_store;
  endfunction

  // Queues.
  logic [64*npu_pkg::DMA_WORDS-1:0] dma_words;
  logic [64*npu_pkg::LOAD_WORDS-1:0] load_words;
  logic [64*npu_pkg::STREAM_WORDS-1:0] stream_words;
  logic [64*npu_pkg::STORE_WORDS-1:0] store_words;
  npu_pkg::dma_t dma_head;
  npu_pkg::load_t load_head;
  npu_pkg::stream_t stream_head;
  npu_pkg::store_t store_head;
  logic [3:0] queue_write;
  logic [31:0] queue_free[4];

  // A window of 64 bytes for each queue.
  for (genvar u = 0; u < 4; u++) begin : window
    assign queue_write[u] = host_write && int'(host_address) == int'(npu_pkg::AT_INSTRUCTION) + 64 * u;
  end

  queue #(npu_pkg::DMA_WORDS, INSTRUCTIONS) dma_queue (
      .clk, .reset, .write(queue_write[DMA]), .data(host_data[64*npu_pkg::DMA_WORDS-1:0]), .free(queue_free[DMA]),
      .pop(pop[DMA]), .valid(valid[DMA]), .head(dma_words)
  );
  queue #(npu_pkg::LOAD_WORDS, INSTRUCTIONS) load_queue (
      .clk, .reset, .write(queue_write[LOAD]), .data(host_data[64*npu_pkg::LOAD_WORDS-1:0]), .free(queue_free[LOAD]),
      .pop(pop[LOAD]), .valid(valid[LOAD]), .head(load_words)
  );
  queue #(npu_pkg::STREAM_WORDS, INSTRUCTIONS) stream_queue (
      .clk, .reset, .write(queue_write[STREAM]), .data(host_data[64*npu_pkg::STREAM_WORDS-1:0]),
      .free(queue_free[STREAM]), .pop(pop[STREAM]), .valid(valid[STREAM]), .head(stream_words)
  );
  queue #(npu_pkg::STORE_WORDS, INSTRUCTIONS) store_queue (
      .clk, .reset, .write(queue_write[STORE]), .data(host_data[64*npu_pkg::STORE_WORDS-1:0]), .free(queue_free[STORE]),
      .pop(pop[STORE]), .valid(valid[STORE]), .head(store_words)
  );

  assign dma_head = dma_words[npu_pkg::DMA_BITS-1:0];
  assign load_head = load_words[npu_pkg::LOAD_BITS-1:0];
  assign stream_head = stream_words[npu_pkg::STREAM_BITS-1:0];
  assign store_head = store_words[npu_pkg::STORE_BITS-1:0];

  // An instruction may start when its waits are over; weights may be loaded when those before them are in use (or
  // begin to be, in this cycle), or, in a serial array, no more; and be taken when they are loaded.
  logic load_started, load_ended, stream_fresh_started, stream_fresh_done;

  always_comb begin
    ready[DMA] = running && reached(dma_head.wait_dma, dma_head.wait_load, dma_head.wait_stream, dma_head.wait_store);
    ready[STREAM] = running &&
        reached(stream_head.wait_dma, stream_head.wait_load, stream_head.wait_stream, stream_head.wait_store) &&
        (!stream_head.fresh || loads_ended != fresh_started);
    ready[LOAD] = running &&
        reached(load_head.wait_dma, load_head.wait_load, load_head.wait_stream, load_head.wait_store) &&
        (PIPELINED ? loads_started == fresh_started + 20'(stream_fresh_started) : loads_started == fresh_completed);
    ready[STORE] = running &&
        reached(store_head.wait_dma, store_head.wait_load, store_head.wait_stream, store_head.wait_store);
    done = running && completed == total;
  end

  // Memories.
  logic [19:0] weights_row, parameters_row[1], table_rows[4], write_row;
  logic [15:0] write_beat;
  logic [8*B-1:0] write_data;
  logic [8*C-1:0] weights_data;
  logic weight_write[C];
  logic signed [25:0] weight_row[C];
  logic [7:0] weight_data[C];
  logic [128*C-1:0] parameters_data[1];
  logic [64*ENTRIES-1:0] tables_data[4];
  logic tables_write, parameters_write, functions_write, weights_fault, tables_fault, parameters_fault, functions_fault;
  logic [3:0] function_row;
  logic signed [7:0] function_byte[C];
  logic signed [15:0] function_data[C];

  weights #(C, WEIGHT_ROWS) weights (
      .clk, .read_row(weights_row), .read_data(weights_data), .write(weight_write), .write_row(weight_row),
      .write_data(weight_data), .fault(weights_fault)
  );
  rows #(PARAMETERS, PARAMETER_BEATS, B, 1, 128 * C) parameters (
      .clk, .write(parameters_write), .write_row, .write_beat, .write_data, .read_row(parameters_row),
      .read_data(parameters_data), .fault(parameters_fault)
  );
  // Read by stream, store, and DMA twice: for what goes out and what comes in.
  rows #(TABLES, TABLE_BEATS, B, 4, 64 * ENTRIES) tables (
      .clk, .write(tables_write), .write_row, .write_beat, .write_data, .read_row(table_rows),
      .read_data(tables_data), .fault(tables_fault)
  );

  functions #(C, FUNCTIONS, B) functions (
      .clk, .write(functions_write), .write_row, .write_beat, .write_data, .read_function(function_row),
      .read_byte(function_byte), .read_data(function_data), .fault(functions_fault)
  );

  logic stream_read[R], out_read[R], store_write[R], fill_write[R];
  logic signed [25:0] stream_address[R], out_address[R], store_address[R], fill_address[R];
  logic [7:0] stream_data[R], stream_row[R], out_data[R], store_data[R], fill_data[R];
  logic read_fault, write_fault, lanes_fault;

  lanes #(R, DEPTH) lanes (
      .clk, .stream_read, .stream_address, .stream_data, .out_read, .out_address, .out_data, .store_write,
      .store_address, .store_data, .dma_write(fill_write), .dma_address(fill_address), .dma_data(fill_data),
      .read_fault, .write_fault, .range_fault(lanes_fault)
  );

  logic sums, sums_add, sums_greatest, sums_last, sums_fresh, store_reads, dma_reads, put, clash_fault, sums_fault;
  logic [15:0] sums_row, store_row, put_row, dma_row;
  logic signed [31:0] column_sums[C], store_sums[C], put_sums[C], dma_sums[C];

  accumulators #(R, C, ACCUMULATORS) accumulators (
      .clk, .reset, .stream(sums), .stream_row(sums_row), .stream_adds(sums_add), .stream_greatest(sums_greatest),
      .stream_last(sums_last), .stream_fresh(sums_fresh), .sum(column_sums), .done(completions[STREAM]), .done_fresh(stream_fresh_done),
      .store_read(store_reads), .store_row, .store_sums, .put, .put_row, .put_sums, .dma_read(dma_reads), .dma_row,
      .dma_sums, .clash_fault,
      .range_fault(sums_fault)
  );

  // Units.
  logic [7:0] weight[C];
  npu_pkg::entry_t [ENTRIES-1:0] stream_entries, store_entries, out_entries, fill_entries;
  logic token, swap;

  assign stream_entries = tables_data[0];
  assign store_entries = tables_data[1];
  assign out_entries = tables_data[2];
  assign fill_entries = tables_data[3];

  array #(R, C, PIPELINED) array_unit (.clk, .lane(stream_row), .swap, .weight, .token, .sum(column_sums));

  load #(R, C) load_unit (
      .clk, .reset, .valid(valid[LOAD]), .head(load_head), .ready(ready[LOAD]), .pop(pop[LOAD]),
      .started(load_started), .ended(load_ended), .done(completions[LOAD]), .read_row(weights_row),
      .read_data(weights_data), .weight, .token
  );
  stream #(R, ENTRIES) stream_unit (
      .clk, .reset, .valid(valid[STREAM]), .head(stream_head), .ready(ready[STREAM]), .pop(pop[STREAM]),
      .fresh_started(stream_fresh_started), .table_row(table_rows[0]), .entries(stream_entries),
      .lane_read(stream_read), .lane_address(stream_address), .lane_data(stream_data), .row(stream_row), .swap, .sums,
      .sums_row, .sums_add, .sums_greatest, .sums_last, .sums_fresh
  );
  store #(R, C, ENTRIES) store_unit (
      .clk, .reset, .valid(valid[STORE]), .head(store_head), .ready(ready[STORE]), .pop(pop[STORE]),
      .done(completions[STORE]), .sums_read(store_reads), .sums_row(store_row), .sums(store_sums),
      .parameters_row(parameters_row[0]), .parameters(parameters_data[0]), .put, .put_row, .put_sums, .function_row,
      .function_byte, .function_data, .table_row(table_rows[1]),
      .entries(store_entries), .lane_write(store_write), .lane_address(store_address), .lane_data(store_data)
  );
  dma #(R, C, B, L, ENTRIES) dma_unit (
      .clk, .reset, .valid(valid[DMA]), .head(dma_head), .ready(ready[DMA]), .pop(pop[DMA]), .done(completions[DMA]),
      .request, .request_write, .request_address, .request_data, .request_bytes, .request_ready, .response,
      .response_ready, .response_data, .out_table_row(table_rows[2]), .out_entries, .out_read, .out_address, .out_data,
      .sums_read(dma_reads), .sums_row(dma_row), .sums(dma_sums), .fill_table_row(table_rows[3]), .fill_entries,
      .lane_write(fill_write), .lane_address(fill_address), .lane_data(fill_data), .weight_write, .weight_row,
      .weight_data, .tables_write, .parameters_write, .functions_write, .write_row, .write_beat, .write_data
  );

  // The registers of the host port.
  always_ff @(posedge clk)
    if (reset) begin
      running <= 1'b0;
      cycles <= '0;
      starved <= '0;
      faults <= '0;
      for (int u = 0; u < 4; u++) begin
        total[u] <= '0;
        completed[u] <= '0;
        taken[u] <= '0;
      end
      loads_started <= '0;
      loads_ended <= '0;
      fresh_started <= '0;
      fresh_completed <= '0;
    end else begin
      if (host_write && host_address == npu_pkg::AT_CONTROL) running <= host_data[0];
      for (int u = 0; u < 4; u++) begin
        if (host_write && int'(host_address) == int'(npu_pkg::AT_TOTAL) + 8 * u) total[u] <= host_data[19:0];
        completed[u] <= completed[u] + 20'(completions[u]);
        taken[u] <= taken[u] + 20'(pop[u]);
      end
      if (running && !done) begin
        cycles <= cycles + 64'd1;
        if (!valid[0] && taken[0] != total[0] || !valid[1] && taken[1] != total[1] ||
            !valid[2] && taken[2] != total[2] || !valid[3] && taken[3] != total[3]) starved <= starved + 64'd1;
      end
      if (running)
        faults <= faults | {functions_fault, tables_fault, parameters_fault, weights_fault, sums_fault, clash_fault,
                            lanes_fault, write_fault, read_fault};
      loads_started <= loads_started + 20'(load_started);
      loads_ended <= loads_ended + 20'(load_ended);
      fresh_started <= fresh_started + 20'(stream_fresh_started);
      fresh_completed <= fresh_completed + 20'(stream_fresh_done);
    end

  always_comb begin
    host_value = 64'd0;
    case (host_address)
      npu_pkg::AT_CONTROL: host_value = {62'd0, done, running};
      npu_pkg::AT_CYCLES: host_value = cycles;
      npu_pkg::AT_STARVED: host_value = starved;
      npu_pkg::AT_FAULTS: host_value = 64'(faults);
      default: ;
    endcase
    for (int u = 0; u < 4; u++) begin
      if (int'(host_address) == int'(npu_pkg::AT_TOTAL) + 8 * u) host_value = 64'(total[u]);
      if (int'(host_address) == int'(npu_pkg::AT_COMPLETED) + 8 * u) host_value = 64'(completed[u]);
      if (int'(host_address) == int'(npu_pkg::AT_FREE) + 8 * u) host_value = 64'(queue_free[u]);
    end
  end
endmodule
