// Package optimistic updates rows of the host's own bun models only at the version that was read: nobody is locked out
// while a row is looked at, and whoever comes second is told instead of overwriting.
//
//	err := optimistic.Retry(ctx, func(ctx context.Context) error {
//		account := Account{ID: 7}
//		if err := db.NewSelect().Model(&account).WherePK().Scan(ctx); err != nil {
//			return err
//		}
//		account.Balance += 10
//		return optimistic.Update(ctx, db, &account)
//	})
//
// The model has a primary key and an integer column named version, or as [WithVersionColumn] says; NULL in the table
// counts as 0, so that the column can be added to rows that are there. Every writer of the table has to count the
// version up; a change that does not is not noticed.
//
// It needs no transaction, and costs nothing but the comparison as long as conflicts are rare. Where many write to one
// row most tries are in vain: take a row lock or a lease there. It protects a row against writes between read and write;
// it does not keep work from being done twice, and it does not cover what was read of other rows.
//
// PostgreSQL and SQLite.
package optimistic
