// Stands for the header of PyTorch in the tests.
