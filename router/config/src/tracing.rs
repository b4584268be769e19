//! Where traces go, as checked.

/// Where traces go, and which requests are traced.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// The collector's host and port.
    pub authority: String,
    /// The path spans are posted to.
    pub path: String,
    /// The share of requests traced whose caller does not say; 0 to 1.
    pub sample_ratio: f64,
}
