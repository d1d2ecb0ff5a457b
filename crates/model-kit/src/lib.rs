//! Checkpoints with every key accounted for, pictures to tensors, fused CPU operators.
