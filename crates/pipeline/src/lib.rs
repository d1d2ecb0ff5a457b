//! The scan: frames in, tracked and identified facings out.
