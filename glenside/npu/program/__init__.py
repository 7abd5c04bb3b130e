"""Programs of the npu: instructions, DRAM image, binary and text files, and affine quantization."""
