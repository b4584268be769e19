//! The demo's models, carried in the program.

use std::{fs, io, net::SocketAddr, path::Path};

const MODELS: &[(&str, &[u8])] = &[
    ("digits.onnx", include_bytes!("../../configs/models/digits.onnx")),
    ("langid.onnx", include_bytes!("../../configs/models/langid.onnx")),
];
const THREE: &str = include_str!("../../configs/models/three.json");

/// Writes the models where the demo's configuration looks for them.
pub(crate) fn unpack(dir: &Path) -> io::Result<()> {
    let models = dir.join("models");
    fs::create_dir_all(&models)?;
    MODELS.iter().try_for_each(|(name, bytes)| {
        let path = models.join(name);
        // The process before this one may have written them, and executors read them.
        if fs::read(&path).is_ok_and(|found| found == *bytes) {
            return Ok(());
        }
        fs::write(path, bytes)
    })
}

pub(crate) fn invitation(address: SocketAddr) -> String {
    format!(
        "\nClassify a digit:\n\n  curl -s http://{address}/v2/models/digits/infer -d '{}'\n",
        THREE.trim()
    )
}
