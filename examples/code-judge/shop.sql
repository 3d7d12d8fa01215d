create table product (name text, price integer);
insert into product values ('pen', 2), ('cup', 8), ('lamp', 42);
