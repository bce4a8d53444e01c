//! How a chat model is told who speaks.
//!
//! In: the file's chat template, a program in another language of which only the family is recognised, and messages. Out: the pieces of
//! the prompt, special tokens apart from text, so that no text can pass for a special token.

/// A piece of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// A token of the vocabulary that stands for itself.
    Special(&'static str),
    /// Text.
    Text(String),
}

/// A family of chat templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Template {
    /// `<|im_start|>role`, a line end, the text, `<|im_end|>`: Qwen, SmolLM and many others.
    ChatMl,
    /// `<|start_header_id|>role<|end_header_id|>`, two line ends, the text, `<|eot_id|>`: Llama 3.
    Llama3,
}

impl Template {
    /// The family of a template.
    pub fn of(template: &str) -> Result<Self, String> {
        if template.contains("<|im_start|>") {
            Ok(Self::ChatMl)
        } else if template.contains("<|start_header_id|>") {
            Ok(Self::Llama3)
        } else if template.is_empty() {
            Err("it holds no chat template, so it is no chat model or an old file".into())
        } else {
            Err("its chat template is of a family that is not known here; known are ChatML and Llama 3".into())
        }
    }

    /// What ends an answer.
    pub fn end(self) -> &'static str {
        match self {
            Self::ChatMl => "<|im_end|>",
            Self::Llama3 => "<|eot_id|>",
        }
    }

    /// Every special token that a prompt may hold.
    pub fn specials(self) -> &'static [&'static str] {
        match self {
            Self::ChatMl => &["<|im_start|>", "<|im_end|>"],
            Self::Llama3 => &["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        }
    }

    /// The prompt of `messages`, (role, text) each, up to where the model goes on.
    pub fn pieces(self, messages: &[(&str, &str)]) -> Vec<Piece> {
        let text = |text: String| Piece::Text(text);
        let special = Piece::Special;
        let mut pieces = Vec::new();
        match self {
            Self::ChatMl => {
                for (role, said) in messages {
                    pieces.extend([
                        special("<|im_start|>"),
                        text(format!("{role}\n{said}")),
                        special("<|im_end|>"),
                        text("\n".into()),
                    ]);
                }
                pieces.extend([special("<|im_start|>"), text("assistant\n".into())]);
            }
            Self::Llama3 => {
                pieces.push(special("<|begin_of_text|>"));
                let head = |role: &str, said: &str| {
                    let (open, close) = (special("<|start_header_id|>"), special("<|end_header_id|>"));
                    [open, text(role.to_owned()), close, text(format!("\n\n{said}"))]
                };
                for (role, said) in messages {
                    pieces.extend(head(role, said.trim()));
                    pieces.push(special("<|eot_id|>"));
                }
                pieces.extend(head("assistant", ""));
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(template: Template) -> String {
        let piece = |piece: Piece| match piece {
            Piece::Special(token) => token.to_owned(),
            Piece::Text(text) => text,
        };
        template.pieces(&[("system", "Be brief."), ("user", " Who? ")]).into_iter().map(piece).collect()
    }

    /// What the models' own templates make of the same messages.
    #[test]
    fn prompts_are_those_of_the_publishers() {
        assert_eq!(
            written(Template::ChatMl),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Who? <|im_end|>\n<|im_start|>assistant\n"
        );
        assert_eq!(
            written(Template::Llama3),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>\
             <|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
        );
    }

    #[test]
    fn a_family_is_known_by_its_marks_or_refused() {
        assert_eq!(Template::of("{{ '<|im_start|>' + role }}"), Ok(Template::ChatMl));
        assert_eq!(Template::of("{{ '<|start_header_id|>' }}"), Ok(Template::Llama3));
        assert!(Template::of("").is_err_and(|e| e.contains("no chat template")));
        assert!(Template::of("{{ '[INST]' }}").is_err_and(|e| e.contains("ChatML and Llama 3")));
        for template in [Template::ChatMl, Template::Llama3] {
            assert!(template.specials().contains(&template.end()));
        }
    }
}
