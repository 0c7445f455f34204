//! The name that programs are linked to: they go on with any library of the same number.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libremora.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
