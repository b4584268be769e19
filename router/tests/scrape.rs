//! A large fleet can be scraped.

#[path = "../benches/support/large.rs"]
mod large;

#[test]
fn page_of_200_models_and_500_slices_is_below_4_mib() {
    let bytes = large::Fleet::new().page().len();
    assert!(bytes > 100 << 10, "{bytes} bytes cannot be a whole fleet");
    assert!(bytes < 4 << 20, "{bytes} bytes");
}
