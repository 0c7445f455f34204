-- Remora's extensions of RoCE v2, below what Wireshark itself shows of a packet. docs/reference/wire/frames.md draws each byte.
--
--   tshark -X lua_script:wireshark/remora.lua -r FILE        or copy it into a folder of plugins (Help, About, Folders)
--
-- The extensions are agreed on where nobody who captures packets sees it: when two queue pairs connect. So what is shown
-- is a matter of preferences (Preferences, Protocols, REMORA; or -o remora.NAME:VALUE):
--
--   prism_auto   packets of PRISM are known by its flags, which are reserved and zero in standard RoCE, and its answers by
--                their requests. On unless it is turned off: packets without flags are left alone.
--   prism_qps    queue pairs all of whose packets count as PRISM's, such as answers whose requests were not captured
--   strom_auto   packets of StRoM are known by their op-codes, which another profile gives to FLUSH and the like. On unless it
--                is turned off.
--   irn_qps      queue pairs that speak IRN. Nothing in a packet says so: its additions stand where payload would.
--   rma_auto     messages of 1RMA are known by their first byte, E0 to E7, which no op-code has. On unless it is turned off.
--                They have no BTH: what Wireshark itself shows of one there is none of theirs.
--
-- Queue pairs are numbers and ranges, as packets name them: 17, 0x11-0x20. Name both ends of a connection.

local remora = Proto("remora", "Remora's extensions of RoCE v2")

remora.prefs.prism_auto = Pref.bool("PRISM where its flags are set", true,
    "Packets with flags of PRISM beside AckReq, and the answers to them")
remora.prefs.prism_qps = Pref.range("Queue pairs with PRISM", "",
    "Destination queue pairs all of whose packets count as PRISM's", 0xffffff)
remora.prefs.strom_auto = Pref.bool("StRoM where its op-codes are", true,
    "Packets with the op-codes 0x18 to 0x1c")
remora.prefs.rma_auto = Pref.bool("1RMA where its kinds are", true,
    "Messages whose first byte is 0xe0 to 0xe7")
remora.prefs.irn_qps = Pref.range("Queue pairs with IRN", "",
    "Destination queue pairs whose packets have IRN's additions", 0xffffff)

-- ---- fields ------------------------------------------------------------------------------------------------------------

local MODES = { [0] = "equal", "not equal", "less", "less or equal", "greater", "greater or equal" }
local VERDICTS = { [0x1f] = "done", [1] = "not swapped", [2] = "skipped", [3] = "no buffer", [4] = "too long" }
local FLAGS = {
    { "addr_indirect", 0x40, "the address is that of a pointer" },
    { "addr_bounded", 0x20, "behind the pointer stands a bound" },
    { "data_indirect", 0x10, "the data stand at the responder" },
    { "conditional", 0x08, "only if the operation before was successful" },
    { "redirect", 0x04, "the output goes to an address at the responder" },
    { "allocate", 0x02, "into a buffer of a free list" },
    { "extended", 0x01, "masks, and up to 32 bytes" },
}

-- What may stand in a bundle or an operation list.
local NAMES = {
    [0x0a] = "RDMA WRITE Only", [0x0c] = "RDMA READ Request", [0x10] = "RDMA READ Response Only",
    [0x12] = "ATOMIC Acknowledge", [0x13] = "CmpSwap", [0x14] = "FetchAdd", [0xc1] = "Operation List", [0xc2] = "Operation List Answer",
}

-- Messages of 1RMA.
local KINDS = {
    [0xe0] = "Read", [0xe1] = "Write", [0xe2] = "Rekey", [0xe3] = "Solicit", [0xe4] = "Data", [0xe5] = "Completion",
    [0xe6] = "NACK", [0xe7] = "Authentication Failure",
}

local prism, bundle, list, strom, irn, rma = {}, {}, {}, {}, {}, {}
local fields = {}

local function field(into, group, name, kind, title, ...)
    into[name] = ProtoField[kind]("remora." .. group .. "." .. name, title, ...)
    fields[#fields + 1] = into[name]
end

field(prism, "prism", "flags", "uint8", "Flags", base.HEX, nil, 0x7f)
for _, flag in ipairs(FLAGS) do
    local name, mask, words = flag[1], flag[2], flag[3]
    local key = "flags." .. name
    prism[key] = ProtoField.bool("remora.prism." .. key, name:upper() .. ": " .. words, 8, nil, mask)
    fields[#fields + 1] = prism[key]
end
field(prism, "prism", "free_list", "uint64", "Free list")
field(prism, "prism", "redirect", "uint64", "Redirect address", base.HEX)
field(prism, "prism", "source", "uint64", "Source address", base.HEX)
field(prism, "prism", "mode", "uint8", "Mode: the operand is … than the target", base.DEC, MODES)
field(prism, "prism", "size", "uint8", "Size in bytes")
field(prism, "prism", "compare_at", "bool", "Compare is an address", 8, nil, 0x01)
field(prism, "prism", "swap_at", "bool", "Swap or add is an address", 8, nil, 0x02)
field(prism, "prism", "compare_mask", "bytes", "Compare mask")
field(prism, "prism", "field_ends", "bytes", "Highest bit of each field")
field(prism, "prism", "swap_mask", "bytes", "Swap mask")
field(prism, "prism", "compare", "bytes", "Compare")
field(prism, "prism", "compare_address", "uint64", "Address of compare", base.HEX)
field(prism, "prism", "swap", "bytes", "Swap or add")
field(prism, "prism", "swap_address", "uint64", "Address of swap or add", base.HEX)
field(prism, "prism", "verdict", "uint8", "Verdict", base.DEC, VERDICTS, 0x1f)
field(prism, "prism", "old", "bytes", "Old value")
field(prism, "prism", "buffer", "uint64", "Address of the buffer", base.HEX)
field(prism, "prism", "written", "uint64", "Bytes written")
field(prism, "prism", "redirected", "uint64", "Bytes redirected")
field(prism, "prism", "result", "bytes", "Result")
field(prism, "prism", "request_in", "framenum", "Answer to the request in frame", base.NONE, frametype.REQUEST)

field(strom, "strom", "opcode", "uint64", "RPC op-code", base.HEX)
field(strom, "strom", "tag", "uint24", "Tag")
field(strom, "strom", "len", "uint32", "Bytes of the message")
field(strom, "strom", "answer", "uint64", "Address of answers", base.HEX)
field(strom, "strom", "rkey", "uint32", "R_Key of answers", base.HEX)
field(strom, "strom", "capacity", "uint32", "Buffer for answers, bytes")
field(strom, "strom", "params", "bytes", "Parameters")
field(bundle, "bundle", "opcode", "uint8", "Op-code", base.HEX, NAMES)
field(bundle, "bundle", "psn", "uint24", "PSN")
field(bundle, "bundle", "len", "uint16", "Bytes of the packet")

field(list, "list", "opcode", "uint8", "Op-code", base.HEX, NAMES)
field(list, "list", "count", "uint8", "Sequence numbers", base.DEC, nil, 0x7f)
field(list, "list", "len", "uint8", "Bytes of the result")

field(irn, "irn", "wqe", "uint24", "Receive WQE number")
field(irn, "irn", "offset", "uint32", "Offset of this payload in the message")
field(irn, "irn", "va", "uint64", "Address of this payload", base.HEX)
field(irn, "irn", "rkey", "uint32", "R_Key", base.HEX)
field(irn, "irn", "len", "uint32", "Bytes from here to the end of the message")
field(irn, "irn", "fetch", "uint24", "READ or atomic number")
field(irn, "irn", "sack", "uint24", "PSN that arrived out of order")

field(rma, "rma", "kind", "uint8", "Kind", base.HEX, KINDS)
field(rma, "rma", "version", "uint8", "Version", base.DEC, nil, 0xf0)
field(rma, "rma", "class", "uint8", "Class", base.DEC, { [0] = "latency", "bulk" }, 0x0f)
field(rma, "rma", "slot", "uint16", "Slot", base.HEX)
field(rma, "rma", "region", "uint32", "RegionId")
field(rma, "rma", "offset", "uint64", "Offset")
field(rma, "rma", "length", "uint32", "Length")
field(rma, "rma", "sender", "uint32", "Nonce: sender's word", base.HEX)
field(rma, "rma", "counter", "uint64", "Nonce: counter")
field(rma, "rma", "pid", "uint32", "PID of the initiator")
field(rma, "rma", "incarnation", "uint32", "Incarnation", base.HEX)
field(rma, "rma", "max_payload", "uint16", "Payload per message at most")
field(rma, "rma", "server_slot", "uint16", "Server's slot", base.HEX)
field(rma, "rma", "timeout", "uint32", "Server's timeout, ns")
field(rma, "rma", "status", "uint8", "Status", base.DEC, { [0] = "OK", "access error" })
field(rma, "rma", "reserved", "bytes", "Reserved, 0")
field(rma, "rma", "sealed", "bytes", "Ciphertext")
field(rma, "rma", "tag", "bytes", "Tag")

remora.fields = fields

local short = ProtoExpert.new("remora.short", "It ends before its headers do", expert.group.MALFORMED,
    expert.severity.ERROR)
local odd = ProtoExpert.new("remora.odd", "Not as docs/reference/wire/frames.md draws it", expert.group.MALFORMED,
    expert.severity.ERROR)
remora.experts = { short, odd }

-- What Wireshark found of the standard headers.
local bth_opcode = Field.new("infiniband.bth.opcode")
local udp_length = Field.new("udp.length")

-- ---- op-codes of reliable connections ------------------------------------------------------------------------------------

local BTH, ICRC = 12, 4
local READ, COMPARE_SWAP, FETCH_ADD, ACKNOWLEDGE, ATOMIC_ACK = 0x0c, 0x13, 0x14, 0x11, 0x12
local READ_ACKNOWLEDGE, RPC, BUNDLE, LIST, LIST_ANSWER = 0x1f, 0x18, 0xc0, 0xc1, 0xc2
-- Bytes before each packet of a bundle, operation of a list, and result.
local HEAD = 4

-- Bytes of an op-code's own extension headers, if it has any.
local OWN = {
    [0x03] = 4, [0x05] = 4, [0x06] = 16, [0x09] = 4, [0x0a] = 16, [0x0b] = 20, [READ] = 16, [0x0d] = 4, [0x0f] = 4,
    [0x10] = 4, [ACKNOWLEDGE] = 4, [ATOMIC_ACK] = 12, [COMPARE_SWAP] = 28, [FETCH_ADD] = 28, [0x16] = 4, [0x17] = 4,
    [READ_ACKNOWLEDGE] = 4, [RPC] = 16, [0x19] = 16, [0x1c] = 16,
}
-- StRoM's: RPC Params, RPC WRITE First, Middle, Last, Only.
local STROM = {
    [RPC] = "RPC Params", [0x19] = "RPC WRITE First", [0x1a] = "RPC WRITE Middle", [0x1b] = "RPC WRITE Last",
    [0x1c] = "RPC WRITE Only",
}
-- Of which flags any may be set: WRITE (First, Middle, Last, Only), READ, atomics.
local MAY = {
    [0x06] = 0x7e, [0x07] = 0x7e, [0x08] = 0x7e, [0x0a] = 0x7e, [READ] = 0x6c, [COMPARE_SWAP] = 0x5d, [FETCH_ADD] = 0x5d,
}
local STARTS = { [0x06] = true, [0x0a] = true, [READ] = true, [COMPARE_SWAP] = true, [FETCH_ADD] = true }
-- An answer has the PSN of the last packet of its request.
local ENDS = { [0x08] = true, [0x0a] = true, [READ] = true, [COMPARE_SWAP] = true, [FETCH_ADD] = true }
-- READ responses: First, Middle, Last, Only.
local RESPONSE = { [0x0d] = true, [0x0e] = true, [0x0f] = true, [0x10] = true }
local MIDDLE = 0x0e

-- IRN's additions by op-code; those of acknowledgements follow from the syndrome.
local IRN = {
    [0x07] = "reth", [0x08] = "reth", [0x09] = "reth message", [0x0b] = "message", [0x16] = "message", [0x17] = "message",
    [READ] = "fetch", [COMPARE_SWAP] = "fetch", [FETCH_ADD] = "fetch", [0x1a] = "reth", [0x1b] = "reth",
}
for opcode = 0x00, 0x05 do IRN[opcode] = "message" end
local NAK_SEQUENCE = 0x60

-- ---- what is remembered from packet to packet ------------------------------------------------------------------------------

local requests  -- by both addresses, queue pair and PSN: a request of PRISM
local latest    -- by both addresses and PSN: the queue pair of the request that came last
local partners  -- by both addresses and the requester's queue pair: the responder's
local reading   -- likewise: the READ whose response is on its way
local answered  -- by frame and place: the request that it answers, because packets are looked at again in any order
local prism_qps, irn_qps = {}, {}

function remora.init()
    requests, latest, partners, reading, answered = {}, {}, {}, {}, {}
end

local function ranges(text)
    local found = {}
    for part in text:gmatch("[^,%s]+") do
        local first, last = part:match("^(%w+)%-(%w+)$")
        first, last = tonumber(first or part), tonumber(last or part)
        if first and last then found[#found + 1] = { first, last } end
    end
    return found
end

function remora.prefs_changed()
    prism_qps, irn_qps = ranges(remora.prefs.prism_qps or ""), ranges(remora.prefs.irn_qps or "")
end

local function holds(list, number)
    for _, range in ipairs(list) do
        if range[1] <= number and number <= range[2] then return true end
    end
    return false
end

local function key(...) return table.concat({ ... }, "|") end

-- Remembers a request, so that its answer is known.
local function remember(packet, request)
    if packet.visited or not ENDS[packet.opcode] then return end
    requests[key(packet.from, packet.to, packet.qp, packet.psn)] = request
    latest[key(packet.from, packet.to, packet.psn)] = packet.qp
end

-- The request of a packet's sequence number, and the queue pair that it came from.
local function sought(packet)
    local partner = partners[key(packet.to, packet.from, packet.qp)] or latest[key(packet.to, packet.from, packet.psn)]
    return partner and requests[key(packet.to, packet.from, partner, packet.psn)], partner
end

-- The request that a packet answers.
local function asked(packet)
    if packet.visited then return answered[packet.place] end
    local way = key(packet.to, packet.from, packet.qp)
    if packet.opcode == 0x0e or packet.opcode == 0x0f then
        answered[packet.place] = reading[way]
        return reading[way]
    end
    local request, partner = sought(packet)
    if request and (request.opcode == READ and not request.redirect) ~= (RESPONSE[packet.opcode] or false) then
        request = nil
    end
    if request then partners[way] = partner end
    if RESPONSE[packet.opcode] then reading[way] = request end
    answered[packet.place] = request
    return request
end

-- ---- packets -----------------------------------------------------------------------------------------------------------------

-- The bytes between the standard headers and the pad, taken one after the other.
local Reader = {}
Reader.__index = Reader

function Reader:take(count)
    if self.at + count > self.last then
        self.short = true
        return nil
    end
    local range = self.tvb(self.at, count)
    self.at = self.at + count
    return range
end

local function put(tree, what, range)
    if range then tree:add(what, range) end
end

local function show_irn(tree, packet, reader)
    local additions = IRN[packet.opcode]
    if packet.opcode == ACKNOWLEDGE or packet.opcode == READ_ACKNOWLEDGE then
        additions = packet.tvb(packet.at + BTH, 1):uint() == NAK_SEQUENCE and "sack" or nil
    end
    if not additions then return end
    local mine = tree():add(remora, packet.tvb(reader.at, 0), "IRN: " .. additions)
    local function number(what)
        local word = reader:take(4)
        if word then put(mine, what, word(1, 3)) end
    end
    for addition in additions:gmatch("%w+") do
        if addition == "reth" then
            put(mine, irn.va, reader:take(8))
            put(mine, irn.rkey, reader:take(4))
            put(mine, irn.len, reader:take(4))
        elseif addition == "message" then
            number(irn.wqe)
            put(mine, irn.offset, reader:take(4))
        else
            number(irn[addition])
        end
    end
    if reader.short then mine:add_proto_expert_info(short) end
end

-- An operand: in the AtomicETH if it is an address or has 8 bytes, else behind the masks.
local function operand(tree, reader, eth, at_responder, size, value, address)
    if at_responder then
        put(tree, address, eth)
    elseif size == 8 then
        put(tree, value, eth)
    else
        put(tree, value, reader:take(size))
    end
end

local function show_operands(tree, packet, reader)
    local head = reader:take(4)
    if not head then return end
    local swaps = packet.opcode == COMPARE_SWAP
    local mode, size, at = head(0, 1):uint(), head(1, 1):uint(), head(2, 1)
    if swaps then tree:add(prism.mode, head(0, 1)) end
    tree:add(prism.size, head(1, 1))
    if size ~= 8 and size ~= 16 and size ~= 32 or mode > 5 or head(3, 1):uint() ~= 0 then
        tree:add_proto_expert_info(odd)
        return
    end
    local eth = packet.tvb(packet.eth, 28)
    if swaps then
        tree:add(prism.compare_at, at)
        tree:add(prism.swap_at, at)
        put(tree, prism.compare_mask, reader:take(size))
        put(tree, prism.swap_mask, reader:take(size))
        operand(tree, reader, eth(20, 8), at:bitfield(7, 1) == 1, size, prism.compare, prism.compare_address)
    else
        tree:add(prism.swap_at, at)
        put(tree, prism.field_ends, reader:take(size))
    end
    operand(tree, reader, eth(12, 8), at:bitfield(6, 1) == 1, size, prism.swap, prism.swap_address)
end

-- Names of the flags that are set, and their fields below `tree`.
local function show_flags(tree, byte)
    local mine, names = tree:add(prism.flags, byte), {}
    for index, flag in ipairs(FLAGS) do
        mine:add(prism["flags." .. flag[1]], byte)
        if byte:bitfield(index, 1) == 1 then names[#names + 1] = flag[1]:upper() end
    end
    return table.concat(names, ", ")
end

local function show_request(tree, packet, reader)
    local byte = packet.tvb(packet.flags, 1)
    local function has(bit) return byte:bitfield(bit, 1) == 1 end
    local redirect, allocate = has(5), has(6)
    local data_indirect, extended = has(3), has(7)
    local write = packet.opcode <= 0x0a
    local mine = tree():add(remora, byte, "PRISM")
    local names = show_flags(mine, byte)
    if names ~= "" then
        mine:append_text(": " .. names)
        packet.info:append(" [PRISM " .. names .. "]")
    end
    if STARTS[packet.opcode] then
        if allocate then mine:add(prism.free_list, packet.tvb(packet.eth, 8)) end
        if redirect then put(mine, prism.redirect, reader:take(8)) end
        if data_indirect and write then put(mine, prism.source, reader:take(8)) end
        if extended then show_operands(mine, packet, reader) end
    end
    if reader.short then mine:add_proto_expert_info(short) end
    local plain = write and names == ""
    remember(packet, { frame = packet.number, opcode = packet.opcode, redirect = redirect, allocate = allocate, plain = plain })
end

-- What the result of an operation that was done, or did not swap, means.
local function meaning(request, verdict)
    if not request or verdict ~= 0x1f and verdict ~= 1 then return prism.result end
    -- The address of a buffer comes back wherever else it goes.
    if request.allocate then return prism.buffer end
    if request.redirect then return prism.redirected end
    if request.opcode == COMPARE_SWAP or request.opcode == FETCH_ADD then return prism.old end
    return prism.written
end

local function show_answer(tree, packet, reader, request)
    if packet.opcode == MIDDLE then return end
    local syndrome = packet.tvb(packet.at + BTH, 1)
    local verdict = syndrome:bitfield(3, 5)
    local words = VERDICTS[verdict]
    if syndrome:bitfield(0, 3) ~= 0 or not (request or words) then return end
    local mine = tree():add(remora, syndrome, "PRISM: " .. (words or "no verdict"))
    mine:add(prism.verdict, syndrome)
    if not words then mine:add_proto_expert_info(odd) end
    if packet.opcode == ATOMIC_ACK then
        local first = packet.at + BTH + 4
        local length = 8 + reader.last - reader.at
        local what = meaning(request, verdict)
        local wide = what == prism.old or what == prism.result
        mine:add(what, packet.tvb(first, wide and length or 8))
        if length ~= 8 and length ~= 16 and length ~= 32 then mine:add_proto_expert_info(odd) end
    end
    if request then mine:add(prism.request_in, request.frame):set_generated() end
    if verdict ~= 0x1f then packet.info:append(" [PRISM " .. (words or "?") .. "]") end
end

-- The RETH of a request to a kernel says other things than that of a WRITE.
local function show_strom(tree, packet, reader)
    local name = STROM[packet.opcode]
    local mine = tree():add(remora, packet.tvb(packet.at, 1), "StRoM: " .. name)
    packet.info:append(" [StRoM " .. name .. "]")
    if OWN[packet.opcode] then
        mine:add(strom.opcode, packet.tvb(packet.at + BTH, 8))
        mine:add(strom.tag, packet.tvb(packet.at + BTH + 9, 3))
        mine:add(strom.len, packet.tvb(packet.at + BTH + 12, 4))
    end
    if packet.opcode == RPC then
        put(mine, strom.answer, reader:take(8))
        put(mine, strom.rkey, reader:take(4))
        put(mine, strom.capacity, reader:take(4))
        if reader.last > reader.at then put(mine, strom.params, reader:take(reader.last - reader.at)) end
    end
    if reader.short then mine:add_proto_expert_info(short) end
end

-- Is any flag set, and none that may not be?
local function are_known(byte, may)
    for index, flag in ipairs(FLAGS) do
        if byte:bitfield(index, 1) == 1 and may % (2 * flag[2]) < flag[2] then return false end
    end
    return byte:bitfield(1, 7) ~= 0
end

-- A packet by where it stands, from its BTH to before its pad, and the numbers by which it is known.
local function packet_at(tvb, pinfo, at, ends)
    local opcode = tvb(at, 1):uint()
    local own = OWN[opcode] or 0
    if at + BTH + own > ends then return nil end
    return {
        tvb = tvb, at = at, flags = at + 8, eth = at + BTH, behind = at + BTH + own, ends = ends - tvb(at + 1, 1):bitfield(2, 2),
        opcode = opcode, qp = tvb(at + 5, 3):uint(), psn = tvb(at + 9, 3):uint(),
        from = tostring(pinfo.net_src), to = tostring(pinfo.net_dst),
        number = pinfo.number, place = key(pinfo.number, at), visited = pinfo.visited, info = pinfo.cols.info,
    }
end

-- The op-codes of ours that no service has.
local OURS = { [BUNDLE] = "bundle", [LIST] = "operation list", [LIST_ANSWER] = "operation list answer" }

-- Where the packet stands that a frame carries; none if it is none of a reliable connection over UDP, and no bundle of those.
local function packet_of(tvb, pinfo)
    local opcode, udp = bth_opcode(), udp_length()
    if not (opcode and udp) or opcode.value > 0x1f and not OURS[opcode.value] then return nil end
    local at, ends = opcode.offset, udp.offset - 4 + udp.value - ICRC
    if ends > tvb:len() or at + BTH > ends or tvb(at, 1):uint() ~= opcode.value then return nil end
    return packet_at(tvb, pinfo, at, ends)
end

-- What is PRISM's and IRN's of one packet, below what `here` gives.
local function show(packet, here)
    local reader = setmetatable({ tvb = packet.tvb, at = packet.behind, last = packet.ends }, Reader)
    local with_irn, all = holds(irn_qps, packet.qp), holds(prism_qps, packet.qp)
    local may = MAY[packet.opcode]
    local flagged = may and are_known(packet.tvb(packet.at + 8, 1), may)
    -- IRN adds nothing to a packet of PRISM.
    if with_irn and not flagged then show_irn(here, packet, reader) end
    if STROM[packet.opcode] and remora.prefs.strom_auto then show_strom(here, packet, reader) end
    if may then
        if all or remora.prefs.prism_auto and flagged then show_request(here, packet, reader) end
    elseif packet.opcode == ATOMIC_ACK or RESPONSE[packet.opcode] then
        -- Over IRN responses have sequence numbers of their own.
        local request = not with_irn and (all or remora.prefs.prism_auto) and asked(packet) or nil
        if all or request then show_answer(here, packet, reader, request) end
    end
end

local function padded(len) return len + (-len) % 4 end

-- The operations of a list, one below the other.
local function show_list(packet, here)
    local tvb, at, psn = packet.tvb, packet.behind, packet.psn
    here():add(list.count, tvb(packet.at + 8, 1))
    while at < packet.ends do
        local opcode = at + HEAD <= packet.ends and tvb(at, 1):uint()
        local behind = opcode and STARTS[opcode] and opcode ~= 0x06 and at + HEAD + OWN[opcode]
        local len = behind and behind <= packet.ends and tvb(at + 2, 2):uint()
        if not len or behind + padded(len) > packet.ends then
            here():add_proto_expert_info(odd)
            return
        end
        local mine = here():add(remora, tvb(at, behind + padded(len) - at), "In the operation list: " .. NAMES[opcode])
        mine:add(list.opcode, tvb(at, 1))
        local inner = setmetatable({ opcode = opcode, flags = at + 1, eth = at + HEAD, psn = psn }, { __index = packet })
        show_request(function() return mine end, inner, setmetatable({ tvb = tvb, at = behind, last = behind + len }, Reader))
        at, psn = behind + padded(len), (psn + 1) % 0x1000000
    end
end

-- The request that the next result answers: a WRITE without flags has none. And the sequence number behind it.
local function next_asked(packet, psn, last)
    while psn ~= (last + 1) % 0x1000000 do
        local place = key(packet.place, psn)
        if not packet.visited then answered[place] = sought(setmetatable({ psn = psn }, { __index = packet })) end
        psn = (psn + 1) % 0x1000000
        if not (answered[place] and answered[place].plain) then return answered[place], psn end
    end
    return nil, psn
end

-- What came of them, likewise.
local function show_results(packet, here)
    local tvb, at, count = packet.tvb, packet.behind, packet.tvb(packet.at + 8, 1)
    here():add(list.count, count)
    local psn, request = (packet.psn + 1 - count:bitfield(1, 7)) % 0x1000000, nil
    while at < packet.ends do
        local len = at + HEAD <= packet.ends and tvb(at + 1, 1):uint()
        if not len or at + HEAD + padded(len) > packet.ends then
            here():add_proto_expert_info(odd)
            return
        end
        request, psn = next_asked(packet, psn, packet.psn)
        local verdict = tvb(at, 1):uint()
        local words = VERDICTS[verdict]
        local mine = here():add(remora, tvb(at, HEAD + padded(len)), "In the answer: " .. (words or "no verdict"))
        mine:add(prism.verdict, tvb(at, 1))
        mine:add(list.len, tvb(at + 1, 1))
        if not words then mine:add_proto_expert_info(odd) end
        local read = request and request.opcode == READ and not request.redirect
        if len > 0 then mine:add(read and prism.result or meaning(request, verdict), tvb(at + HEAD, len)) end
        if request then mine:add(prism.request_in, request.frame):set_generated() end
        if verdict ~= 0x1f then packet.info:append(" [PRISM " .. (words or "?") .. "]") end
        at = at + HEAD + padded(len)
    end
end

-- What is ours of a packet alone, or in a bundle.
local function show_any(packet, here)
    if packet.opcode == LIST then
        show_list(packet, here)
    elseif packet.opcode == LIST_ANSWER then
        show_results(packet, here)
    else
        show(packet, here)
    end
end

-- The packets of a bundle, one below the other.
local function show_bundle(packet, here)
    local tvb, at = packet.tvb, packet.behind
    while at < packet.ends do
        local len = at + HEAD <= packet.ends and tvb(at, 2):uint() or 0
        local inner = len >= BTH and at + HEAD + len <= packet.ends
            and packet_at(tvb, packet.pinfo, at + HEAD, at + HEAD + len)
        if not inner then
            here():add_proto_expert_info(odd)
            return
        end
        local mine = here():add(remora, tvb(at, HEAD + len), "In the bundle: " .. (NAMES[inner.opcode] or "?"))
        mine:add(bundle.len, tvb(at, 2))
        mine:add(bundle.opcode, tvb(inner.at, 1))
        mine:add(bundle.psn, tvb(inner.at + 9, 3))
        show_any(inner, function() return mine end)
        at = at + HEAD + len
    end
end

local TAG = 16
-- The parts of a message's header: bytes, and the fields that they hold.
local RMA_HEADER = {
    { 1, "kind" }, { 1, "version", "class" }, { 2, "slot" }, { 4, "region" }, { 8, "offset" }, { 4, "length" },
    { 4, "sender" }, { 8, "counter" },
}
-- Those that its kind adds.
local REQUEST = { { 4, "pid" }, { 4, "incarnation" }, { 2, "max_payload" }, { 2, "reserved" } }
local ADDS = {
    [0xe0] = REQUEST, [0xe1] = REQUEST, [0xe2] = REQUEST,
    [0xe3] = { { 2, "server_slot" }, { 2, "max_payload" }, { 4, "timeout" } },
    [0xe5] = { { 1, "status" }, { 3, "reserved" } },
}

local function show_parts(tree, reader, parts)
    for _, part in ipairs(parts) do
        local range = reader:take(part[1])
        for index = 2, #part do put(tree, rma[part[index]], range) end
    end
end

-- Shows a message of 1RMA. False: the frame has none.
local function show_rma(tvb, pinfo, tree)
    local kind, udp = bth_opcode(), udp_length()
    local name = kind and udp and remora.prefs.rma_auto and KINDS[kind.value]
    if not name then return false end
    local at, ends = kind.offset, udp.offset - 4 + udp.value
    if ends > tvb:len() or tvb(at, 1):uint() ~= kind.value then return false end
    local mine = tree:add(remora, tvb(at, ends - at), "1RMA: " .. name)
    local reader = setmetatable({ tvb = tvb, at = at, last = ends }, Reader)
    show_parts(mine, reader, RMA_HEADER)
    show_parts(mine, reader, ADDS[kind.value] or {})
    local sealed = ends - TAG - reader.at
    if sealed > 0 then put(mine, rma.sealed, reader:take(sealed)) end
    put(mine, rma.tag, reader:take(TAG))
    pinfo.cols.protocol:set("1RMA")
    pinfo.cols.info:set(name)
    if reader.short then
        mine:add_proto_expert_info(short)
        return true
    end
    local slot, region, length = tvb(at + 2, 2):uint(), tvb(at + 4, 4):uint(), tvb(at + 16, 4):uint()
    pinfo.cols.info:append(string.format(" slot=0x%x region=%d length=%d", slot, region, length))
    if sealed ~= (name == "Data" and length or 0) then mine:add_proto_expert_info(odd) end
    return true
end

function remora.dissector(tvb, pinfo, tree)
    if show_rma(tvb, pinfo, tree) then return end
    local packet = packet_of(tvb, pinfo)
    if not packet then return end
    -- The line of ours below the packet is there only if there is something to show.
    local root
    local function here()
        root = root or tree:add(remora, tvb(packet.at, packet.ends - packet.at))
        return root
    end
    if OURS[packet.opcode] then
        pinfo.cols.info:append(" [PRISM " .. OURS[packet.opcode] .. "]")
    end
    if packet.opcode == BUNDLE then
        packet.pinfo = pinfo
        show_bundle(packet, here)
    else
        show_any(packet, here)
    end
end

register_postdissector(remora, true)
