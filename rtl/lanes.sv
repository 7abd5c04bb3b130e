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

  // A bank serves whoever asks for its half; two at once are a fault, and the first is served.
  logic [23:0] read_row[R][2], write_row[R][2];
  logic [7:0] read_data[R][2], write_data[R][2];
  logic write[R][2], stream_there[R], out_there[R], stream_upper[R], out_upper[R];

  function automatic logic at(input logic asks, input logic signed [25:0] place, input logic half);
    return asks && exists(place) && upper(place) == half;
  endfunction

  function automatic logic [23:0] row(input logic signed [25:0] place, input logic half);
    return 24'(place) - (half ? 24'(HALF) : 24'd0);
  endfunction

  always_comb
    for (int l = 0; l < R; l++)
      for (int h = 0; h < 2; h++) begin
        read_row[l][h] = row(at(stream_read[l], stream_address[l], h[0]) ? stream_address[l] : out_address[l], h[0]);
        write[l][h] = at(store_write[l], store_address[l], h[0]) || at(dma_write[l], dma_address[l], h[0]);
        write_row[l][h] = row(at(store_write[l], store_address[l], h[0]) ? store_address[l] : dma_address[l], h[0]);
        write_data[l][h] = at(store_write[l], store_address[l], h[0]) ? store_data[l] : dma_data[l];
      end

  for (genvar l = 0; l < R; l++) begin : lane
    for (genvar h = 0; h < 2; h++) begin : bank
      ram #(HALF, 8) held (
          .clk, .read_row(read_row[l][h]), .read_data(read_data[l][h]), .write(write[l][h]),
          .write_row(write_row[l][h]), .write_data(write_data[l][h])
      );
    end
  end

  always_ff @(posedge clk)
    for (int l = 0; l < R; l++) begin
      stream_there[l] <= stream_read[l] && exists(stream_address[l]);
      stream_upper[l] <= upper(stream_address[l]);
      out_there[l] <= out_read[l] && exists(out_address[l]);
      out_upper[l] <= upper(out_address[l]);
    end

  always_comb
    for (int l = 0; l < R; l++) begin
      stream_data[l] = stream_there[l] ? read_data[l][stream_upper[l]] : 8'd0;
      out_data[l] = out_there[l] ? read_data[l][out_upper[l]] : 8'd0;
    end
endmodule
