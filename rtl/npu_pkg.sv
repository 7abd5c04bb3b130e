// Registers and the layouts of instructions. Written by glenside.npu.isa.encoding.package(): do not edit.
package npu_pkg;

  // Addresses of the host port; of those that each unit has, the first.
  localparam logic [9:0] AT_CONTROL = 10'h000;
  localparam logic [9:0] AT_CYCLES = 10'h008;
  localparam logic [9:0] AT_STARVED = 10'h010;
  localparam logic [9:0] AT_FAULTS = 10'h018;
  localparam logic [9:0] AT_TOTAL = 10'h040;
  localparam logic [9:0] AT_COMPLETED = 10'h080;
  localparam logic [9:0] AT_FREE = 10'h0c0;
  localparam logic [9:0] AT_INSTRUCTION = 10'h200;

  localparam int DMA_BITS = 508;
  localparam int DMA_WORDS = 8;
  localparam logic [3:0] WEIGHTS = 4'd0;
  localparam logic [3:0] LANES = 4'd1;
  localparam logic [3:0] FILL = 4'd2;
  localparam logic [3:0] TABLES = 4'd3;
  localparam logic [3:0] PARAMETERS = 4'd4;
  localparam logic [3:0] OUT = 4'd5;
  localparam logic [3:0] SUMS = 4'd6;
  localparam logic [3:0] SPREAD = 4'd7;
  localparam logic [3:0] FUNCTIONS = 4'd8;
  typedef struct packed {  // the last field begins at bit 0
    logic [0:0] increment;
    logic signed [15:0] accumulators_stride2;
    logic signed [15:0] accumulators_stride1;
    logic signed [15:0] accumulators_stride0;
    logic [15:0] accumulators_base;
    logic [0:0] carry;
    logic [9:0] turn_stride2;
    logic [9:0] turn_stride1;
    logic [9:0] turn_stride0;
    logic [9:0] turn_base;
    logic [9:0] lane_table;
    logic signed [23:0] lanes_stride2;
    logic signed [23:0] lanes_stride1;
    logic signed [23:0] lanes_stride0;
    logic [23:0] lanes_base;
    logic signed [31:0] dram_stride2;
    logic signed [31:0] dram_stride1;
    logic signed [31:0] dram_stride0;
    logic [15:0] count2;
    logic [15:0] count1;
    logic [15:0] count0;
    logic [15:0] rows;
    logic [19:0] row;
    logic [31:0] dram_base;
    logic [19:0] wait_store;
    logic [19:0] wait_stream;
    logic [19:0] wait_load;
    logic [19:0] wait_dma;
    logic [3:0] operation;
  } dma_t;

  localparam int LOAD_BITS = 116;
  localparam int LOAD_WORDS = 2;
  typedef struct packed {  // the last field begins at bit 0
    logic [15:0] rows;
    logic [19:0] row;
    logic [19:0] wait_store;
    logic [19:0] wait_stream;
    logic [19:0] wait_load;
    logic [19:0] wait_dma;
  } load_t;

  localparam int STREAM_BITS = 341;
  localparam int STREAM_WORDS = 6;
  typedef struct packed {  // the last field begins at bit 0
    logic [0:0] greatest;
    logic [9:0] turn_stride2;
    logic [9:0] turn_stride1;
    logic [9:0] turn_stride0;
    logic [9:0] turn_base;
    logic [0:0] fresh;
    logic [0:0] accumulate;
    logic signed [15:0] accumulators_stride2;
    logic signed [15:0] accumulators_stride1;
    logic signed [15:0] accumulators_stride0;
    logic [15:0] accumulators_base;
    logic [9:0] lane_table;
    logic signed [23:0] lanes_stride2;
    logic signed [23:0] lanes_stride1;
    logic signed [23:0] lanes_stride0;
    logic [23:0] lanes_base;
    logic [15:0] count2;
    logic [15:0] count1;
    logic [15:0] count0;
    logic [19:0] wait_store;
    logic [19:0] wait_stream;
    logic [19:0] wait_load;
    logic [19:0] wait_dma;
  } stream_t;

  localparam int STORE_BITS = 452;
  localparam int STORE_WORDS = 8;
  localparam logic [2:0] STORE = 3'd0;
  localparam logic [2:0] GREATEST = 3'd1;
  localparam logic [2:0] MEAN = 3'd2;
  localparam logic [2:0] DEVIATION = 3'd3;
  localparam logic [2:0] TOTAL = 3'd4;
  localparam logic [2:0] SCALE = 3'd5;
  localparam logic [2:0] APPLY = 3'd6;
  typedef struct packed {  // the last field begins at bit 0
    logic [3:0] lookup;
    logic [0:0] applies;
    logic [0:0] carry;
    logic [9:0] turn_stride2;
    logic [9:0] turn_stride1;
    logic [9:0] turn_stride0;
    logic [9:0] turn_base;
    logic signed [9:0] column_stride2;
    logic signed [9:0] column_stride1;
    logic signed [9:0] column_stride0;
    logic [9:0] column_base;
    logic [0:0] alike;
    logic signed [15:0] parameters_stride2;
    logic signed [15:0] parameters_stride1;
    logic signed [15:0] parameters_stride0;
    logic [15:0] parameters_base;
    logic [9:0] lane_table;
    logic signed [23:0] lanes_stride2;
    logic signed [23:0] lanes_stride1;
    logic signed [23:0] lanes_stride0;
    logic [23:0] lanes_base;
    logic signed [15:0] accumulators_stride2;
    logic signed [15:0] accumulators_stride1;
    logic signed [15:0] accumulators_stride0;
    logic [15:0] accumulators_base;
    logic [15:0] count2;
    logic [15:0] count1;
    logic [15:0] count0;
    logic [19:0] wait_store;
    logic [19:0] wait_stream;
    logic [19:0] wait_load;
    logic [19:0] wait_dma;
    logic [2:0] operation;
  } store_t;

  // An entry of a lane table, and a column's parameters, as they are in DRAM.
  typedef struct packed {
    logic [7:0] sign;  // of the offset, once more
    logic signed [23:0] offset;
    logic [14:0] unused;
    logic enable;
    logic [15:0] select;
  } entry_t;
  typedef struct packed {
    logic [39:0] unused;
    logic signed [7:0] high;
    logic signed [7:0] low;
    logic signed [7:0] zero;
    logic [31:0] scale;
    logic signed [31:0] bias;
  } parameters_t;

endpackage
