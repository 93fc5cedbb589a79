/* Tokens of formulas. They are those of contracts (core/contract/parts.h) and a few more; messages are the same. */
#ifndef TNI_FUSE_LEX_H
#define TNI_FUSE_LEX_H

#include "core/contract/parts.h"
#include "language.h"

enum { TNI_TOKEN_POWER = 300, TNI_TOKEN_LEFT, TNI_TOKEN_RIGHT }; /* ** << >> */

/* Moves to the next token. Line ends are tokens ('\n') where they end a statement: not inside brackets. */
tn_status tni_formula_next(tni_lexer *lex, bool lines);

/* formula_foreign.c: fails, with what to write instead, where other languages have a sign and a formula has none. */
tn_status tni_check_foreign(const tni_lexer *lex, int32_t at);
tn_status tni_fail_number(const tni_lexer *lex, int32_t at, int32_t length); /* behind whose `length` a word goes on */

#endif
