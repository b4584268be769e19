//! A large fleet can be scraped.

#[path = "../benches/support/large.rs"]
mod large;

use router::metrics::Format;

#[test]
fn ask_17_the_page_of_200_models_and_500_slices_is_below_4_mib() {
    let fleet = large::Fleet::new();
    for format in [Format::Text, Format::Protobuf] {
        let bytes = fleet.page(format).len();
        assert!(bytes > 100 << 10, "{format:?}: {bytes} bytes cannot be a whole fleet");
        assert!(bytes < 4 << 20, "{format:?}: {bytes} bytes");
    }
}
