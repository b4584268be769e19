//! Where clients come in, one module per protocol.

pub mod oip;
