use super::*;

/// Op-code, name, extension headers and payload, copied from the tables of the specification and not from
/// the code.
const TABLE: &[(u8, &str, &str, bool)] = &[
    (0x00, "RC SEND First", "", true),
    (0x01, "RC SEND Middle", "", true),
    (0x02, "RC SEND Last", "", true),
    (0x03, "RC SEND Last with Immediate", "imm", true),
    (0x04, "RC SEND Only", "", true),
    (0x05, "RC SEND Only with Immediate", "imm", true),
    (0x06, "RC RDMA WRITE First", "reth", true),
    (0x07, "RC RDMA WRITE Middle", "", true),
    (0x08, "RC RDMA WRITE Last", "", true),
    (0x09, "RC RDMA WRITE Last with Immediate", "imm", true),
    (0x0a, "RC RDMA WRITE Only", "reth", true),
    (0x0b, "RC RDMA WRITE Only with Immediate", "reth imm", true),
    (0x0c, "RC RDMA READ Request", "reth", false),
    (0x0d, "RC RDMA READ Response First", "aeth", true),
    (0x0e, "RC RDMA READ Response Middle", "", true),
    (0x0f, "RC RDMA READ Response Last", "aeth", true),
    (0x10, "RC RDMA READ Response Only", "aeth", true),
    (0x11, "RC Acknowledge", "aeth", false),
    (0x12, "RC ATOMIC Acknowledge", "aeth atomic_ack", false),
    (0x13, "RC CmpSwap", "atomic_eth", false),
    (0x14, "RC FetchAdd", "atomic_eth", false),
    (0x16, "RC SEND Last with Invalidate", "ieth", true),
    (0x17, "RC SEND Only with Invalidate", "ieth", true),
    (0x18, "RC RPC Params", "reth", true),
    (0x19, "RC RPC WRITE First", "reth", true),
    (0x1a, "RC RPC WRITE Middle", "", true),
    (0x1b, "RC RPC WRITE Last", "", true),
    (0x1c, "RC RPC WRITE Only", "reth", true),
    (0x1f, "RC READ Acknowledge", "aeth", false),
    (0x20, "UC SEND First", "", true),
    (0x21, "UC SEND Middle", "", true),
    (0x22, "UC SEND Last", "", true),
    (0x23, "UC SEND Last with Immediate", "imm", true),
    (0x24, "UC SEND Only", "", true),
    (0x25, "UC SEND Only with Immediate", "imm", true),
    (0x26, "UC RDMA WRITE First", "reth", true),
    (0x27, "UC RDMA WRITE Middle", "", true),
    (0x28, "UC RDMA WRITE Last", "", true),
    (0x29, "UC RDMA WRITE Last with Immediate", "imm", true),
    (0x2a, "UC RDMA WRITE Only", "reth", true),
    (0x2b, "UC RDMA WRITE Only with Immediate", "reth imm", true),
    (0x64, "UD SEND Only", "deth", true),
    (0x65, "UD SEND Only with Immediate", "deth imm", true),
    (0x81, "CNP", "", true),
    (0xa0, "XRC SEND First", "xrceth", true),
    (0xa1, "XRC SEND Middle", "xrceth", true),
    (0xa2, "XRC SEND Last", "xrceth", true),
    (0xa3, "XRC SEND Last with Immediate", "xrceth imm", true),
    (0xa4, "XRC SEND Only", "xrceth", true),
    (0xa5, "XRC SEND Only with Immediate", "xrceth imm", true),
    (0xa6, "XRC RDMA WRITE First", "xrceth reth", true),
    (0xa7, "XRC RDMA WRITE Middle", "xrceth", true),
    (0xa8, "XRC RDMA WRITE Last", "xrceth", true),
    (0xa9, "XRC RDMA WRITE Last with Immediate", "xrceth imm", true),
    (0xaa, "XRC RDMA WRITE Only", "xrceth reth", true),
    (0xab, "XRC RDMA WRITE Only with Immediate", "xrceth reth imm", true),
    (0xac, "XRC RDMA READ Request", "xrceth reth", false),
    (0xad, "XRC RDMA READ Response First", "aeth", true),
    (0xae, "XRC RDMA READ Response Middle", "", true),
    (0xaf, "XRC RDMA READ Response Last", "aeth", true),
    (0xb0, "XRC RDMA READ Response Only", "aeth", true),
    (0xb1, "XRC Acknowledge", "aeth", false),
    (0xb2, "XRC ATOMIC Acknowledge", "aeth atomic_ack", false),
    (0xb3, "XRC CmpSwap", "xrceth atomic_eth", false),
    (0xb4, "XRC FetchAdd", "xrceth atomic_eth", false),
    (0xb6, "XRC SEND Last with Invalidate", "xrceth ieth", true),
    (0xb7, "XRC SEND Only with Invalidate", "xrceth ieth", true),
    (0xc0, "PRISM Bundle", "", true),
    (0xc1, "PRISM Operation List", "", true),
    (0xc2, "PRISM Operation List Answer", "", true),
];

/// Returns the extension headers that the predicates report, in wire order.
fn extensions(opcode: Opcode) -> String {
    let all = [
        (opcode.has_xrceth(), "xrceth"),
        (opcode.has_deth(), "deth"),
        (opcode.has_reth(), "reth"),
        (opcode.has_atomic_eth(), "atomic_eth"),
        (opcode.has_aeth(), "aeth"),
        (opcode.has_atomic_ack(), "atomic_ack"),
        (opcode.has_imm(), "imm"),
        (opcode.has_ieth(), "ieth"),
    ];
    let there: Vec<_> = all.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    there.join(" ")
}

fn bytes_of(header: &str) -> usize {
    match header {
        "xrceth" | "aeth" | "imm" | "ieth" => 4,
        "deth" | "atomic_ack" => 8,
        "reth" => 16,
        "atomic_eth" => 28,
        other => panic!("{other}"),
    }
}

/// Checks the name and the extension headers of every RC, UC, UD and XRC op-code.
#[test]
fn every_op_code_of_the_table() {
    for &(code, name, headers, payload) in TABLE {
        let opcode = Opcode(code);
        assert!(opcode.is_known(), "{name}");
        assert_eq!(opcode.to_string(), name);
        assert_eq!(extensions(opcode), headers, "{name}");
        let len: usize = headers.split_whitespace().map(bytes_of).sum();
        assert_eq!(opcode.header_len(), 12 + len, "{name}");
        assert_eq!(opcode.has_payload(), payload, "{name}");
        let service = name.split(' ').next().unwrap().to_lowercase();
        assert_eq!(format!("{:?}", opcode.service().unwrap()).to_lowercase(), service, "{name}");
    }
}

#[test]
fn positions_and_directions_follow_the_names() {
    for &(code, name, _, _) in TABLE {
        let opcode = Opcode(code);
        let positions = [opcode.is_first(), opcode.is_middle(), opcode.is_last(), opcode.is_only()];
        let single = !["First", "Middle", "Last"].iter().any(|word| name.contains(word));
        let expected = [name.contains("First"), name.contains("Middle"), name.contains("Last"), single];
        assert_eq!(positions, expected, "{name}");
        if opcode == Opcode::IRN_READ_ACKNOWLEDGE || opcode == Opcode::BUNDLE {
            // A READ Acknowledge is sent by the requester but is no request, and a queue pair without IRN
            // ignores it. A bundle has the direction of its packets.
            assert!(!opcode.is_request() && !opcode.is_response());
            continue;
        }
        let response = ["Response", "cknowledge", "CNP", "Answer"].iter().any(|word| name.contains(word));
        assert_eq!((opcode.is_response(), opcode.is_request()), (response, !response), "{name}");
    }
}

#[test]
fn everything_else_is_unknown() {
    let mut unknown = 0;
    for code in 0..=255 {
        if TABLE.iter().any(|row| row.0 == code) {
            continue;
        }
        unknown += 1;
        let opcode = Opcode(code);
        assert!(!opcode.is_known() && !opcode.is_request() && !opcode.is_response(), "{code:#x}");
        assert_eq!((opcode.service(), opcode.operation(), opcode.header_len()), (None, None, 0), "{code:#x}");
        assert_eq!(extensions(opcode), "", "{code:#x}");
        assert_eq!(opcode.to_string(), format!("op-code {code:#04x}"));
    }
    assert_eq!(unknown, 256 - 70);
}

#[test]
fn operations() {
    for (opcode, operation) in [
        (Opcode::RC_SEND_LAST_INV, Operation::Send),
        (Opcode::UC_SEND_MIDDLE, Operation::Send),
        (Opcode::UD_SEND_ONLY_IMM, Operation::Send),
        (Opcode::XRC_RDMA_WRITE_ONLY_IMM, Operation::Write),
        (Opcode::RC_RDMA_WRITE_FIRST, Operation::Write),
        (Opcode::RC_RDMA_READ_REQUEST, Operation::ReadRequest),
        (Opcode::RC_RDMA_READ_RESPONSE_FIRST, Operation::ReadResponse),
        (Opcode::XRC_RDMA_READ_RESPONSE_ONLY, Operation::ReadResponse),
        (Opcode::RC_ACKNOWLEDGE, Operation::Acknowledge),
        (Opcode::RC_ATOMIC_ACKNOWLEDGE, Operation::AtomicAcknowledge),
        (Opcode::IRN_READ_ACKNOWLEDGE, Operation::ReadAcknowledge),
        (Opcode::RC_COMPARE_SWAP, Operation::CompareSwap),
        (Opcode::XRC_FETCH_ADD, Operation::FetchAdd),
        (Opcode::STROM_RPC_PARAMS, Operation::Rpc),
        (Opcode::STROM_RPC_WRITE_FIRST, Operation::RpcWrite),
        (Opcode::STROM_RPC_WRITE_MIDDLE, Operation::RpcWrite),
        (Opcode::STROM_RPC_WRITE_LAST, Operation::RpcWrite),
        (Opcode::STROM_RPC_WRITE_ONLY, Operation::RpcWrite),
        (Opcode::CNP, Operation::Congestion),
        (Opcode::BUNDLE, Operation::Bundle),
        (Opcode::OPERATION_LIST, Operation::OperationList),
        (Opcode::OPERATION_LIST_ANSWER, Operation::OperationListAnswer),
    ] {
        assert_eq!(opcode.operation(), Some(operation), "{opcode}");
    }
}
