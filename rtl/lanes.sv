// The scratchpad: R lanes of bytes, each of two banks (halves), each bank with one read and one write port. Lanes have
// addresses of their own. The stream unit and DMA read, the store unit and DMA write: in one cycle they may do so in
// the same lane only in different halves.
//
//                lower half            upper half
//              +------------+        +------------+
//   read  ---->| RAM, 1R 1W |<---    | RAM, 1R 1W |<---- the other reader, or the other writer
//              +------------+        +------------+
module lanes #(
    parameter int R     = 4,
    parameter int DEPTH = 16
) (
    input  logic               clk,
    input  logic               stream_read[R],
    input  logic signed [25:0] stream_address[R],
    output logic        [7:0]  stream_data[R],     // in the next cycle; 0 where nothing was read
    input  logic               out_read[R],
    input  logic signed [25:0] out_address[R],
    output logic        [7:0]  out_data[R],
    input  logic               store_write[R],
    input  logic signed [25:0] store_address[R],
    input  logic        [7:0]  store_data[R],
    input  logic               dma_write[R],
    input  logic signed [25:0] dma_address[R],
    input  logic        [7:0]  dma_data[R],
    output logic               read_fault,    // two readers at one port
    output logic               write_fault,   // two writers at one port
    output logic               range_fault    // an address outside
);
  localparam int HALF = DEPTH / 2;

  logic [7:0] memory[R][DEPTH];

  function automatic logic exists(input logic signed [25:0] place);
    return place >= 0 && place < 26'(DEPTH);
  endfunction

  function automatic logic upper(input logic signed [25:0] place);
    return place >= 26'(HALF);
  endfunction

  always_comb begin
    read_fault  = 1'b0;
    write_fault = 1'b0;
    range_fault = 1'b0;
    for (int l = 0; l < R; l++) begin
      if (stream_read[l] && out_read[l] && upper(stream_address[l]) == upper(out_address[l])) read_fault = 1'b1;
      if (store_write[l] && dma_write[l] && upper(store_address[l]) == upper(dma_address[l])) write_fault = 1'b1;
      if (stream_read[l] && !exists(stream_address[l]) || out_read[l] && !exists(out_address[l]) ||
          store_write[l] && !exists(store_address[l]) || dma_write[l] && !exists(dma_address[l])) range_fault = 1'b1;
    end
  end

  logic [7:0] stream_next[R], out_next[R];

  always_comb
    for (int l = 0; l < R; l++) begin
      stream_next[l] = stream_read[l] && exists(stream_address[l]) ? memory[l][int'(stream_address[l])] : 8'd0;
      out_next[l] = out_read[l] && exists(out_address[l]) ? memory[l][int'(out_address[l])] : 8'd0;
    end

  always_ff @(posedge clk) begin
    stream_data <= stream_next;
    out_data <= out_next;
    for (int l = 0; l < R; l++) begin
      if (store_write[l] && exists(store_address[l])) memory[l][int'(store_address[l])] <= store_data[l];
      if (dma_write[l] && exists(dma_address[l])) memory[l][int'(dma_address[l])] <= dma_data[l];
    end
  end
endmodule
