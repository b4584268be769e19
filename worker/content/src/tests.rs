use std::{fs, process::Command};

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("content-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A field of a protocol buffer that holds bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let tag = u16::from(number) << 3 | 2;
    let mut all =
        if tag < 0x80 { vec![tag as u8] } else { vec![tag as u8 | 0x80, (tag >> 7) as u8] };
    let mut length = bytes.len();
    while length >= 0x80 {
        all.push(length as u8 | 0x80);
        length >>= 7;
    }
    all.push(length as u8);
    [all, bytes.to_vec()].concat()
}

/// A tensor whose data is in the file `location`.
fn tensor(location: &str) -> Vec<u8> {
    let entry = |key: &str, value: &str| {
        field(13, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    };
    [vec![0x10, 1], entry("location", location), entry("offset", "4096")].concat()
}

/// A model with a tensor of its own, one in a file beside it, and one of a graph within in another.
fn model(beside: &str, within: &str) -> Vec<u8> {
    let own = field(5, &field(9, &[7; 300]));
    let graph = field(5, &tensor(within));
    let node = field(1, &field(5, &field(6, &graph)));
    let graph = [node, own, field(5, &tensor(beside))].concat();
    [vec![0x08, 9], field(7, &graph)].concat()
}

#[test]
fn digest_of_one_file_is_what_sha256sum_prints() {
    let folder = Folder::new("one");
    let path = folder.write("m.onnx", &[42; 3_000_000]);
    let printed = Command::new("sha256sum").arg(&path).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert_eq!(read(&path).unwrap().digest(), printed.split(' ').next().unwrap());
    assert!(read(&folder.0.join("missing")).is_err());
}

#[test]
fn weights_beside_the_model_are_part_of_it() {
    let folder = Folder::new("beside");
    let path = folder.write("m.onnx", &model("m.onnx.data", "sub/else.bin"));
    fs::create_dir(folder.0.join("sub")).unwrap();
    folder.write("m.onnx.data", b"one");
    folder.write("sub/else.bin", b"two");
    let lines = Command::new("sha256sum")
        .args(["m.onnx", "m.onnx.data", "sub/else.bin"])
        .current_dir(&folder.0)
        .output()
        .unwrap();
    let lines = String::from_utf8(lines.stdout).unwrap();
    let before = read(&path).unwrap();
    assert_eq!(before.digest(), hex(Sha256::digest(&lines).as_slice()));
    folder.write("sub/else.bin", b"TWO");
    assert!(!before.still_holds());
    let after = read(&path).unwrap();
    assert_ne!(after.digest(), before.digest());
    fs::remove_file(folder.0.join("m.onnx.data")).unwrap();
    assert_ne!(read(&path).unwrap().digest(), after.digest());
}

#[test]
fn names_outside_the_folder_and_what_is_no_model_lead_nowhere() {
    let names = |bytes: &[u8]| external::locations(&mut io::Cursor::new(bytes));
    assert_eq!(names(&model("/etc/passwd", "../up")).len(), 0);
    let good = model("a", "b");
    assert_eq!(names(&good), ["a".to_owned(), "b".to_owned()].into());
    for end in 0..good.len() {
        assert!(names(&good[..end]).len() <= 2, "cut at {end}");
    }
    assert!(names(b"this is no model").is_empty());
    assert!(names(&[0xff; 64]).is_empty());
}

#[test]
fn a_file_that_was_touched_is_read_again() {
    let folder = Folder::new("touched");
    let path = folder.write("m.onnx", b"one");
    let before = digest(&path).unwrap();
    assert_eq!(digest(&path).unwrap(), before);
    let content = read(&path).unwrap();
    assert!(content.still_holds());
    // The same size, and perhaps the same tick of the file system's clock.
    folder.write("m.onnx", b"two");
    assert_ne!(digest(&path).unwrap(), before);
    assert!(!content.still_holds());
    folder.write("m.onnx", b"one");
    assert_eq!(digest(&path).unwrap(), before);
}
