//! The token of a run: all who know it belong to the run.
//!
//! The token itself is never sent. Each side proves that it knows it with a keyed SipHash over both sides' nonces, so
//! that neither a listener on the wire nor a stranger on a stale port learns anything of use.

use std::hash::Hasher;
use std::io::Read;

use siphasher::sip128::{Hasher128, SipHasher24};
use subtle::ConstantTimeEq;
use types::{Error, ErrorKind, Result};

/// What one side makes up for each connection.
pub type Nonce = [u8; 16];
pub type Proof = [u8; 16];

/// The least length of a token: shorter ones could be guessed.
const LENGTH_MIN: usize = 16;

#[derive(Clone)]
pub struct RunToken {
    text: String,
    key: [u8; 16],
}

/// Which side proves itself; without it one side's proof could be sent back to it.
#[derive(Clone, Copy)]
pub enum Side {
    Member,
    FleetCoordinator,
}

impl RunToken {
    pub fn random() -> Result<RunToken> {
        let bytes = random_bytes()?;
        RunToken::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn new(text: String) -> Result<RunToken> {
        if text.len() < LENGTH_MIN || text.contains(char::is_whitespace) {
            let what =
                format!("must have at least {LENGTH_MIN} characters and no spaces: openssl rand -hex 16");
            return Err(Error::new(ErrorKind::Config, "the token of a run", what));
        }
        Ok(RunToken::chosen(text))
    }

    /// A token that people have chosen, of any length: it keeps out those who come by mistake.
    pub fn chosen(text: String) -> RunToken {
        let mut hasher = SipHasher24::new();
        hasher.write(text.as_bytes());
        let key = hasher.finish128().as_bytes();
        RunToken { text, key }
    }

    /// For the environment or the standard input of a process of this run; never for a command line or a log.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What shows that `side` knows the token, and means `what`.
    pub fn prove(&self, side: Side, coordinator: &Nonce, member: &Nonce, what: &[u8]) -> Proof {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(match side {
            Side::Member => b"member-",
            Side::FleetCoordinator => b"coordin",
        });
        hasher.write(coordinator);
        hasher.write(member);
        hasher.write(what);
        hasher.finish128().as_bytes()
    }

    pub fn is_proven(
        &self,
        proof: &Proof,
        side: Side,
        coordinator: &Nonce,
        member: &Nonce,
        what: &[u8],
    ) -> bool {
        // In a time that does not depend on where the proofs differ.
        proof.ct_eq(&self.prove(side, coordinator, member, what)).into()
    }
}

pub fn random_bytes() -> Result<[u8; 16]> {
    let (mut bytes, path) = ([0; 16], "/dev/urandom");
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|e| Error::io("read random bytes from", path, e))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_one_token_side_and_connection() {
        let token = RunToken::random().unwrap();
        let other = RunToken::random().unwrap();
        let (c, m) = ([1; 16], [2; 16]);
        let proof = token.prove(Side::Member, &c, &m, b"rank 1");
        assert!(token.is_proven(&proof, Side::Member, &c, &m, b"rank 1"));
        assert!(!other.is_proven(&proof, Side::Member, &c, &m, b"rank 1"));
        assert!(!token.is_proven(&proof, Side::FleetCoordinator, &c, &m, b"rank 1"));
        assert!(!token.is_proven(&proof, Side::Member, &[3; 16], &m, b"rank 1"));
        assert!(!token.is_proven(&proof, Side::Member, &c, &[3; 16], b"rank 1"));
        assert!(!token.is_proven(&proof, Side::Member, &c, &m, b"rank 2"));
        for bit in 0..128 {
            let mut wrong = proof;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!token.is_proven(&wrong, Side::Member, &c, &m, b"rank 1"));
        }
    }

    #[test]
    fn a_token_that_could_be_guessed_is_refused() {
        assert!(RunToken::new("secret".into()).is_err());
        assert!(RunToken::new("two words, many characters".into()).is_err());
    }
}
