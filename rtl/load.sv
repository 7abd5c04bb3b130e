// Rows of weights to the array, one a cycle, and zeros behind them: R cycles, however few rows there are.
//
//   cycle          start  +1     +2     +3
//   row 0          issue  read   wait   enters the array, with the token
module load #(
    parameter int R = 4,
    parameter int C = 4
) (
    input  logic                    clk,
    input  logic                    reset,
    input  logic                    valid,
    input  npu_pkg::load_t          head,
    input  logic                    ready,     // its waits are over, and the array takes weights
    output logic                    pop,
    output logic                    started,
    output logic                    ended,
    output logic                    done,
    output logic             [19:0] read_row,  // of weight memory, whose data is there in the next cycle
    input  logic         [8*C-1:0]  read_data,
    output logic             [7:0]  weight[C],
    output logic                    token
);
  logic busy;
  logic [15:0] kept, now;
  logic go, last;

  always_comb begin
    go = busy || valid && ready;
    now = busy ? kept : 16'd0;
    last = int'(now) == R - 1;
    started = go && !busy;
    ended = go && last;
    pop = ended;
  end

  // The stages behind the issue: which row is read, whether it is one of the instruction's, and what the array gets.
  logic first1, first2, real1, real2, last1, last2;

  logic [7:0] weight_next[C];

  always_comb for (int c = 0; c < C; c++) weight_next[c] = real2 ? read_data[8*c+:8] : 8'd0;

  always_ff @(posedge clk) begin
    if (reset) begin
      busy  <= 1'b0;
      first1 <= 1'b0;
      first2 <= 1'b0;
      token <= 1'b0;
      last1 <= 1'b0;
      last2 <= 1'b0;
    end else begin
      if (go) begin
        busy <= !last;
        kept <= now + 16'd1;
      end
      read_row <= head.row + 20'(now);
      real1 <= go && now < head.rows;
      first1 <= started;
      last1 <= ended;
      real2 <= real1;
      first2 <= first1;
      last2 <= last1;
      token <= first2;
      weight <= weight_next;
    end
  end

  assign done = last2;
endmodule
