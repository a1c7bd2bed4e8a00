// SPDX-License-Identifier: MIT OR Apache-2.0
//! The text of each status, for programs that have no error object.
//!
//! An error object says more: whom the failure concerns, and what to do. The text of a status
//! depends on its number alone, so C++ uses it for the messages of its error codes.

use std::ffi::CStr;

/// Returns the text of a status. A number that is no status gets a text that says so.
pub(crate) fn status_text(status: i32) -> &'static CStr {
    let found = TEXTS.binary_search_by_key(&status, |(number, _)| *number);
    found.map_or(UNKNOWN, |index| TEXTS[index].1)
}

const UNKNOWN: &CStr = c"this version of the library has no such status";

/// The text of each status, in rising order of the numbers: success, and every number of SPEC 17.
const TEXTS: &[(i32, &CStr)] = &[
    (0, c"success"),
    (1, c"the object belongs to the parent process"),
    (2, c"a system call failed"),
    (3, c"the session uses another protocol, which failed"),
    (4, c"the deadline passed"),
    (5, c"there is no room for the message now"),
    (6, c"there is no message now"),
    (7, c"the operation would have to wait"),
    (8, c"another thread uses the object"),
    (9, c"the peer has ended its direction"),
    (10, c"the peer died or hung up"),
    (11, c"the message is too long for this connection"),
    (12, c"the batch can never be sent"),
    (13, c"a setting is impossible"),
    (14, c"the memory was reserved on another channel"),
    (21, c"the peer broke a rule of another protocol"),
    (22, c"a request was refused in another protocol"),
    (23, c"the peer of another protocol hung up"),
    (101, c"the peer sent an impossible header of its region"),
    (102, c"the peer sent an impossible word where a record must begin"),
    (103, c"the peer sent an impossible kind of record"),
    (104, c"the peer sent a kind of record that is impossible at this moment"),
    (105, c"the peer sent an impossible record length"),
    (106, c"the peer sent an impossible padding"),
    (107, c"the peer sent an impossible record body"),
    (108, c"the peer sent an impossible count of consumed bytes"),
    (109, c"the peer sent an impossible count of released blocks"),
    (110, c"the peer sent an impossible block id"),
    (111, c"the peer sent an impossible message length: longer than agreed"),
    (112, c"the peer sent an impossible amount of memory: more than agreed"),
    (113, c"the descriptor of a segment did not come from the peer"),
    (114, c"the peer sent fragments in an impossible order or length"),
    (115, c"the peer sent an impossible frame or byte on the control socket"),
    (116, c"the peer sent a record that is impossible for the state of its stream"),
    (117, c"the peer sent a message beyond its credit, or credit for bytes never sent"),
    (201, c"the peer did not finish the handshake in time"),
    (202, c"the peer hung up during the handshake"),
    (203, c"the peer does not speak Partywall"),
    (204, c"no protocol version in common"),
    (205, c"the peer refused the connection"),
    (206, c"this side does not admit the user of the peer"),
    (207, c"the peer uses another service"),
    (208, c"no transport suits both sides"),
    (209, c"the peer broke a rule of the handshake"),
    (210, c"a descriptor of the peer is of the wrong kind"),
    (211, c"a system call failed during the handshake"),
    (212, c"the handshake of another protocol failed"),
    (301, c"this is no address: use unix:/path, unix:@name or tcp:host:port"),
    (302, c"the path or name of the address is too long"),
    (303, c"the host name cannot be looked up"),
    (304, c"other hosts can reach the address: use allow_remote"),
    (305, c"TCP does not identify the clients of a link"),
    (306, c"the process or the system has no descriptor left"),
    (307, c"the kernel has no memory for the connection"),
    (311, c"another process listens at the address"),
    (312, c"the path of the address is not a socket"),
    (313, c"the socket file is stale, and another process holds the lock of its directory"),
    (314, c"this user may not listen at the address"),
    (315, c"the directory of the address does not exist"),
    (316, c"listening failed"),
    (321, c"accepting failed"),
    (331, c"the listener did not take the connection in time"),
    (332, c"the path of the address does not exist"),
    (333, c"no process listens at the address"),
    (334, c"the path of the address is not a socket"),
    (335, c"this user may not connect to the address"),
    (336, c"connecting failed"),
    (401, c"this side has closed the session"),
    (402, c"the session's protocol has no such operation"),
    (403, c"the peer asked for no more streams"),
    (404, c"the peer accepts no streams"),
    (405, c"the metadata of the stream are too long"),
    (406, c"the peer has stopped receiving from the stream"),
    (407, c"the peer has reset the stream"),
    (408, c"this side has ended its sending"),
    (409, c"this side has ended its receiving"),
    (410, c"the pool of sessions was closed"),
    (411, c"the peer has closed the session"),
    (421, c"the value has no encoding"),
    (422, c"the message is no such value"),
    (423, c"the message is no such plain structure"),
    (501, c"the link was closed in this process"),
    (502, c"a later owner of this end has attached"),
    (503, c"the two ends of the link contradict each other"),
    (504, c"the message was acknowledged with a later one"),
    (505, c"the message comes again, or its epoch is over"),
    (506, c"only the client of a link can change its address"),
    (507, c"the process has this link already"),
    (508, c"the server has as many links as it may"),
    (509, c"the memory of the link contradicts itself"),
    (510, c"a new epoch must have a higher number"),
    (511, c"a name of the link is empty"),
    (512, c"a name of the link has more than 255 bytes"),
    (521, c"the directory of links cannot be opened"),
    (522, c"the directory belongs to another user"),
    (523, c"others may write to the directory"),
    (524, c"the file's name belongs to something else"),
    (525, c"the file belongs to another user"),
    (526, c"the mode of the link's file is not 600"),
    (527, c"another process owns the file of the link"),
    (528, c"another process is opening the link"),
    (529, c"there is no room for a new file"),
    (530, c"the file system lacks what a link's file needs"),
    (531, c"the sizes asked for make no file"),
    (532, c"a system call on the file failed"),
    (533, c"the link was not closed before the last reboot"),
    (534, c"the file of the link is gone since the last reboot"),
    (541, c"the directory has no file of this link"),
    (542, c"the file's records contradict its state"),
    (543, c"there is no quarantine to end"),
    (544, c"no copy of the file could be made, so it was left as it is"),
    (601, c"the file is not that of a link"),
    (602, c"the file of the link is truncated"),
    (603, c"the file of the link is of an older version"),
    (604, c"the file of the link is of a newer version"),
    (605, c"the header of the link's file is damaged"),
    (606, c"the file of the link has another layout"),
    (607, c"the file of the link is too long"),
    (608, c"a name in the link's file is impossible"),
    (609, c"the file is that of another link"),
    (610, c"the sizes in the link's file are impossible"),
    (611, c"the owner in the link's file is damaged"),
    (612, c"the state in the link's file is damaged"),
    (613, c"the acknowledged position in the link's file is damaged"),
    (614, c"the file of the link contradicts itself"),
    (701, c"the message is no record of a lossy sender"),
    (711, c"the handler of the call has failed"),
    (712, c"the server has too many calls: try again later"),
    (713, c"the server gave up the call"),
    (721, c"a message is shorter than the header of a call"),
    (722, c"the header of a call is impossible"),
    (723, c"the frame is one of the other role"),
    (724, c"the id of a call does not rise"),
    (725, c"the answer is to a call that was never made"),
    (801, c"the classes of buffer slices are impossible"),
    (802, c"the prefix of names holds no file name"),
    (803, c"the prefix of names holds a zero byte"),
    (804, c"the prefix of names leaves no room for the rest"),
    (811, c"another hot restart is under way"),
    (812, c"a hot restart has no epoch 0"),
    (813, c"the last hot restart had the same epoch"),
    (901, c"an object is empty, an argument is out of range, or a timeout is negative"),
    (902, c"the object was freed, or is of another type"),
    (903, c"a defect of the library; the object cannot be used any more"),
    (904, c"the buffer is shorter than the message"),
    (905, c"too many objects"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use partywall_testkit::error_numbers::NumberTable;

    #[test]
    fn every_number_of_the_specification_has_a_text_and_no_other() {
        let violations = NumberTable::of_section("9.3 Violations");
        let numbers = NumberTable::of_section("17 Error numbers").with(100, "", &violations);
        let expected: Vec<i32> = numbers.numbers().map(|it| i32::try_from(it).unwrap()).collect();
        let found: Vec<i32> = TEXTS.iter().map(|(number, _)| *number).collect();
        assert_eq!(found[1..], expected, "each number once, in rising order");
        assert_eq!(found[0], 0);
        assert!(TEXTS.iter().all(|(_, text)| text.to_bytes().len() > 5));
    }

    #[test]
    fn numbers_without_a_meaning_have_the_text_that_says_so() {
        for number in [-1, i32::MIN, i32::MAX, 18, 599] {
            assert_eq!(status_text(number), UNKNOWN);
        }
        assert_eq!(status_text(333), c"no process listens at the address");
    }
}
