//! The counters of a running server, read from its Prometheus endpoint and by `remora top`.

use crate::running::{Server, counters};

#[test]
fn counters_grow_with_what_is_done() {
    let server = Server::start("farm", "shm", &["--metrics", "127.0.0.1:0"]);
    let address = server.metrics.clone();
    let reads = "remora_rx_read_requests_total{engine=\"0\",port=\"shm\"}";
    let sends = "remora_rx_send_requests_total{engine=\"0\",port=\"shm\"}";
    let before = counters(&address);
    server.kv("put", &["key", "value"]).good();
    let put = counters(&address);
    assert_eq!(put[sends] - before[sends], 1.0, "a PUT is one call");
    server.kv("get", &["key"]).good();
    let got = counters(&address);
    assert_eq!(got[sends], put[sends], "a GET is no call");
    assert_eq!(got[reads] - put[reads], 2.0, "a GET is two READs: neighbourhood and value");
}
