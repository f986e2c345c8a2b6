"""Exporters write stored runs for other tools: TensorBoard, Weights & Biases, and lines as MLPerf has them."""
