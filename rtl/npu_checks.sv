// Assertions of ports, delays and interlocks. Written by glenside.npu.isa.checks.assertions(): do not edit.
// For simulation: `verilator --assert`, with a DRAM that always answers in L cycles.
module npu_checks #(
    parameter int R = 4,
    parameter int C = 4,
    parameter bit PIPELINED = 1,
    parameter int DEPTH = 32,
    parameter int ACCUMULATORS = 16,
    parameter int L = 0
) (
    input logic clk,
    input logic reset
);
  default clocking @(posedge clk); endclocking
  default disable iff (reset);

  for (genvar i = 0; i < R; i++) begin : dma_reads_lanes_beside_stream_in
    dma_reads_lanes_beside_stream: assert property (
      !(npu.out_read[i] && npu.stream_read[i] && (npu.out_address[i] >= 26'(DEPTH / 2)) == (npu.stream_address[i] >= 26'(DEPTH / 2)))
    );
  end
  for (genvar i = 0; i < R; i++) begin : dma_writes_lanes_beside_store_in
    dma_writes_lanes_beside_store: assert property (
      !(npu.fill_write[i] && npu.store_write[i] && (npu.fill_address[i] >= 26'(DEPTH / 2)) == (npu.store_address[i] >= 26'(DEPTH / 2)))
    );
  end
  for (genvar i = 0; i < C; i++) begin : dma_reads_accumulators_beside_stream_in
    dma_reads_accumulators_beside_stream: assert property (
      !(npu.dma_reads && npu.accumulators.stage[R+1+i].valid && npu.accumulators.stage[R+1+i].adds && (npu.dma_row >= 16'(ACCUMULATORS / 2)) == (npu.accumulators.stage[R+1+i].row >= 16'(ACCUMULATORS / 2)))
    );
  end
  dma_reads_accumulators_beside_store: assert property (
    !(npu.dma_reads && npu.store_reads && (npu.dma_row >= 16'(ACCUMULATORS / 2)) == (npu.store_row >= 16'(ACCUMULATORS / 2)))
  );
  for (genvar i = 0; i < C; i++) begin : stream_reads_accumulators_beside_store_in
    stream_reads_accumulators_beside_store: assert property (
      !(npu.accumulators.stage[R+1+i].valid && npu.accumulators.stage[R+1+i].adds && npu.store_reads && (npu.accumulators.stage[R+1+i].row >= 16'(ACCUMULATORS / 2)) == (npu.store_row >= 16'(ACCUMULATORS / 2)))
    );
  end
  for (genvar i = 0; i < C; i++) begin : stream_writes_accumulators_beside_store_in
    stream_writes_accumulators_beside_store: assert property (
      !(npu.accumulators.stage[R+1+i].valid && npu.put && (npu.accumulators.stage[R+1+i].row >= 16'(ACCUMULATORS / 2)) == (npu.put_row >= 16'(ACCUMULATORS / 2)))
    );
  end
  for (genvar i = 0; i < R; i++) begin : stream_reads_lanes_in_time_in
    stream_reads_lanes_in_time: assert property (
      npu.stream_read[i] |-> 
      $past(npu.stream_unit.go, 2)
    );
  end
  for (genvar i = 0; i < R; i++) begin : dma_reads_lanes_in_time_in
    dma_reads_lanes_in_time: assert property (
      npu.out_read[i] |-> 
      $past(npu.dma_unit.go && (npu.dma_head.operation == npu_pkg::OUT), 2)
    );
  end
  for (genvar i = 0; i < R; i++) begin : store_writes_lanes_in_time_in
    store_writes_lanes_in_time: assert property (
      npu.store_write[i] |-> 
      $past(npu.store_unit.go && (npu.store_head.operation == npu_pkg::STORE), 9)
    );
  end
  for (genvar i = 0; i < R; i++) begin : dma_writes_lanes_in_time_in
    dma_writes_lanes_in_time: assert property (
      npu.fill_write[i] |-> 
      $past(npu.dma_unit.go && (npu.dma_head.operation == npu_pkg::LANES || npu.dma_head.operation == npu_pkg::FILL), L + 6)
    );
  end
  for (genvar i = 0; i < C; i++) begin : stream_reads_accumulators_in_time_in
    stream_reads_accumulators_in_time: assert property (
      npu.accumulators.stage[R+1+i].valid && npu.accumulators.stage[R+1+i].adds |-> 
      $past(npu.stream_unit.go && npu.stream_head.accumulate, R + 3 + i)
    );
  end
  for (genvar i = 0; i < C; i++) begin : stream_writes_accumulators_in_time_in
    stream_writes_accumulators_in_time: assert property (
      npu.accumulators.stage[R+1+i].valid |-> 
      $past(npu.stream_unit.go, R + 3 + i)
    );
  end
  store_reads_accumulators_in_time: assert property (
    npu.store_reads |-> 
    $past(npu.store_unit.go, 1)
  );
  store_writes_accumulators_in_time: assert property (
    npu.put |-> 
    $past(npu.store_unit.go && (npu.store_head.operation == npu_pkg::SCALE || npu.store_head.operation == npu_pkg::APPLY), 8)
  );
  dma_reads_accumulators_in_time: assert property (
    npu.dma_reads |-> 
    $past(npu.dma_unit.go && (npu.dma_head.operation == npu_pkg::SUMS), 2)
  );
  load_reads_weights_in_time: assert property (
    npu.load_unit.real1 |-> 
    $past(npu.load_unit.go, 1)
  );
  dma_completed_in_time: assert property (
    npu.completions[0] |-> 
    $past(npu.pop[0], L + 6)
  );
  load_completed_in_time: assert property (
    npu.completions[1] |-> 
    $past(npu.pop[1], 2)
  );
  stream_completed_in_time: assert property (
    npu.completions[2] |-> 
    $past(npu.pop[2], R + 3 + C - 1)
  );
  store_completed_in_time: assert property (
    npu.completions[3] |-> 
    $past(npu.pop[3], 9)
  );
  logic [19:0] stream_start;  // interlocked instructions of stream: events so far
  always_ff @(posedge clk) stream_start <= reset ? '0 : stream_start + 20'(npu.stream_fresh_started);

  logic [19:0] stream_completed;  // interlocked instructions of stream: events so far
  always_ff @(posedge clk) stream_completed <= reset ? '0 : stream_completed + 20'(npu.stream_fresh_done);

  logic [19:0] load_end;  // interlocked instructions of load: events so far
  always_ff @(posedge clk) load_end <= reset ? '0 : load_end + 20'(npu.load_ended);

  logic [19:0] load_start;  // interlocked instructions of load: events so far
  always_ff @(posedge clk) load_start <= reset ? '0 : load_start + 20'(npu.load_started);

  load_interlock: assert property (
    npu.load_started |-> 
    (PIPELINED ? stream_start + 20'(npu.stream_fresh_started) + 20'd1 > load_start : stream_completed + 20'd1 > load_start)
  );
  stream_interlock: assert property (
    npu.stream_fresh_started |-> 
    load_end + 20'd0 > stream_start
  );
endmodule

bind npu npu_checks #(
    .R(R), .C(C), .PIPELINED(PIPELINED), .DEPTH(DEPTH), .ACCUMULATORS(ACCUMULATORS), .L(L)
) checks (.clk(clk), .reset(reset));
