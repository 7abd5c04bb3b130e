// Functions of a byte: tables of 256 int16, number v modulo 256 for byte v. Each column reads one of a cycle, so each
// has a copy of the memory. DRAM brings them by beats; where a beat is one byte, the lower one waits for the other.
module functions #(
    parameter int C         = 4,
    parameter int FUNCTIONS = 2,
    parameter int B         = 8   // bytes of a beat
) (
    input  logic                 clk,
    input  logic                 write,
    input  logic [19:0]          write_row,      // which function
    input  logic [15:0]          write_beat,
    input  logic [8*B-1:0]       write_data,
    input  logic [3:0]           read_function,
    input  logic signed [7:0]    read_byte[C],
    output logic signed [15:0]   read_data[C],   // in the next cycle
    output logic                 fault           // a write outside
);
  localparam int W = B < 2 ? 2 : B > 512 ? 512 : B;  // bytes of a word
  localparam int WORDS = 512 / W;                    // of a function
  localparam int PLACE = W > 2 ? $clog2(W / 2) : 1;  // bits that select a number in a word

  logic [7:0] lower;
  logic here;
  logic [23:0] write_place;
  logic [8*W-1:0] word;

  assign fault = write && int'(write_row) >= FUNCTIONS;

  if (B < 2) begin : halves
    always_ff @(posedge clk) if (write) lower <= write_data[7:0];
    assign here = write && write_beat[0] && !fault;
    assign write_place = 24'(write_row) * 24'(WORDS) + 24'(write_beat >> 1);
    assign word = {write_data[7:0], lower};
  end else begin : whole
    assign lower = 8'd0;
    assign here = write && !fault;
    assign write_place = 24'(write_row) * 24'(WORDS) + 24'(write_beat);
    assign word = write_data[8*W-1:0];
  end

  for (genvar c = 0; c < C; c++) begin : column
    logic [11:0] number;
    logic [PLACE-1:0] place;
    logic [8*W-1:0] held;

    assign number = {read_function, read_byte[c]};

    ram #(FUNCTIONS * WORDS, 8 * W) memory (
        .clk, .read_row(24'(number) / 24'(W / 2)), .read_data(held), .write(here), .write_row(write_place),
        .write_data(word)
    );

    always_ff @(posedge clk) place <= W > 2 ? PLACE'(number) : '0;

    assign read_data[c] = held[16*int'(place)+:16];
  end
endmodule
