//! Sets the library's soname, so that programs keep working with every library version of the same number.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libremora.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
