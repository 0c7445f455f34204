//! Messages of clients to the program of a grant server.

/// A program's handler for messages of clients that have their grants. The replies use the same connections.
/// A single thread calls the handler, and it passes the messages of each client in order.
pub trait CallHandler: Send {
    /// The maximum length of a message in bytes, in both directions.
    fn longest(&self) -> usize;

    /// Handles a message of the client on `connection`, and puts replies into `replies`. Returns false to end
    /// the connection because the client broke the protocol.
    fn message(&mut self, connection: usize, message: &[u8], replies: &mut Replies) -> bool;

    /// Handles the end of a connection. A later connection may get the same number.
    fn ended(&mut self, connection: usize);
}

/// The replies to one message.
#[derive(Debug)]
pub struct Replies(pub(super) Vec<Vec<u8>>);

impl Replies {
    /// Adds a reply. Replies are sent in the order in which they are added.
    pub fn push(&mut self, message: Vec<u8>) {
        self.0.push(message);
    }
}
